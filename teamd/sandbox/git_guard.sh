#!/bin/bash
# Stands before git in a shared folder: refuses a command that would change a protected file before
# git moves anything. Git itself fails at such a file half way, and moves HEAD all the same. This is
# for the teammate's convenience alone: the mounts protect the files, however git is called.
real=$TEAMD_REAL_GIT words=("$@") before=()
while (( ${#words[@]} )); do
  case ${words[0]} in
    -C | -c | --git-dir | --work-tree | --namespace)
      before+=("${words[@]:0:2}") words=("${words[@]:2}") ;;
    -*) before+=("${words[0]}") words=("${words[@]:1}") ;;
    *) break ;;
  esac
done
verb=${words[0]}
case $verb in
  checkout | switch | merge | rebase | reset | stash | bisect | cherry-pick | revert) ;;
  *) exec "$real" "$@" ;;
esac

ask() { GIT_OPTIONAL_LOCKS=0 "$real" "${before[@]}" "$@" 2> /dev/null; }
[ "$(ask rev-parse --show-toplevel)" = "$TEAMD_WORKSPACE" ] || exec "$real" "$@"
readarray -t places <<< "$TEAMD_PROTECTED"
specs=("${places[@]/#/:(top,literal)}")

refuse() {
  [ -n "$1" ] || return 0
  echo "teamd: git $verb would change ${1%%$'\n'*}, which is protected in this folder; nothing was" \
    "changed, and only the person can do this" >&2
  exit 1
}
differ() { refuse "$(ask diff --name-only "$@" -- "${specs[@]}")"; }
touched() { refuse "$(ask log -m --format= --name-only "$@" -- "${specs[@]}")"; }

commits=() paths= skip=
for word in "${words[@]:1}"; do
  if [ -n "$skip" ]; then skip=; continue; fi
  case $word in
    --) paths=yes; break ;;
    -) word='@{-1}' ;;
    -b | -B | -c | -C | -m | --orphan) skip=yes; continue ;;
    -*) continue ;;
  esac
  if found=$(ask rev-parse -q --verify "$word^{commit}"); then commits+=("$found"); else paths=yes; fi
done

case $verb in
  # With paths HEAD stays, and git names the file that it cannot write.
  checkout | switch) [ -n "$paths" ] || for one in "${commits[@]}"; do differ HEAD "$one"; done ;;
  reset)
    case " ${words[*]:1} " in
      *" --hard "* | *" --merge "* | *" --keep "*) differ "${commits[0]:-HEAD}" ;;
    esac ;;
  merge) for one in "${commits[@]}"; do differ "HEAD...$one"; done ;;
  rebase) for one in "${commits[@]}"; do differ HEAD "$one"; touched "$one..HEAD"; done ;;
  cherry-pick | revert) for one in "${commits[@]}"; do touched "$one^!"; done ;;
  stash)
    case ${words[1]} in
      pop | apply) differ "${words[2]:-stash}^1" "${words[2]:-stash}" ;;
      '' | push | save | -*) differ HEAD ;;
    esac ;;
  bisect)
    readarray -t known < <(ask for-each-ref --format='%(objectname)' refs/bisect)
    for one in "${commits[@]}" "${known[@]}"; do differ HEAD "$one"; touched "HEAD...$one"; done ;;
esac
exec "$real" "$@"
