"""`python -m teamctl`."""

from teamctl.main import main

if __name__ == "__main__":
    main()
