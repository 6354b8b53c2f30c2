#!/bin/bash
# Replaces git in the sandbox. In a shared folder it refuses a command that would change a protected
# file before git starts: git itself would fail halfway and still move HEAD. It also excludes the
# empty folders that the sandbox mounts from `clean` and `stash -u`, in copies as well, and explains
# there how to push. This is only for the teammate's convenience: the mounts protect the files in any
# case.
real=$TEAMD_REAL_GIT words=("$@") before=()
while (( ${#words[@]} )); do
  case ${words[0]} in
    -C | -c | --git-dir | --work-tree | --namespace)
      before+=("${words[@]:0:2}") words=("${words[@]:2}") ;;
    -*) before+=("${words[0]}") words=("${words[@]:1}") ;;
    *) break ;;
  esac
done
ask() { GIT_OPTIONAL_LOCKS=0 "$real" "${before[@]}" "$@" 2> /dev/null; }
is_guarded() {
  case $verb in
    checkout | switch | merge | rebase | reset | stash | bisect | cherry-pick | revert | clean | pull) ;;
    *) return 1 ;;
  esac
}
verb=${words[0]}
if [ -n "$verb" ] && ! is_guarded && alias=$(ask config "alias.$verb") &&
  [ "${alias:0:1}" != '!' ]; then
  read -ra words <<< "$alias ${words[*]:1}"
  verb=${words[0]}
fi
if [ "$verb" = push ] && [ -n "$TEAMD_PUSH" ]; then
  name=
  for word in "${words[@]:1}"; do
    case $word in -*) ;; *) name=$word; break ;; esac
  done
  url=$(ask remote get-url "${name:-origin}")
  # A copy has no remote; in a shared folder one may be a path that commands reach.
  if { [[ $TEAMD_PUSH == copy && -z $url ]] || [[ $url == *:* ]]; } &&
    ! [[ $name == */* || $name == *:* ]] &&
    [ "$(ask rev-parse --show-toplevel)" = "$TEAMD_WORKSPACE" ]; then
    echo "teamd: this sandbox reaches no remote; teamd pushes outside of it, when the person allows" \
      'it: call bash with `git push` alone, without other commands, pipes or scripts around it' >&2
    exit 1
  fi
fi
is_guarded || exec "$real" "$@"
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
says() { [[ " ${words[*]:1} " == *" $1 "* ]]; }

# The empty folders mounted at missing protected paths, which git cannot remove.
readarray -t empty < <(
  cd "$TEAMD_WORKSPACE" || exit
  for place in "${places[@]}"; do
    [ -d "$place" ] && [ -z "$(ls -A "$place")" ] && echo "/$place/"
  done
)
if [ "$verb" = clean ]; then
  exec "$real" "${before[@]}" clean "${empty[@]/#/--exclude=}" "${words[@]:1}"
fi

case $verb in
  checkout | switch) values='-b -B -c -C' ;;
  merge) values='-m -F -s -X' ;;
  rebase) values='-x -s -X' ;;
  cherry-pick | revert) values='-m -X' ;;
  stash) values=-m ;;
  pull) values='-s -X' ;;
esac
commits=() ranges=() names=() paths= skip=
for word in "${words[@]:1}"; do
  if [ -n "$skip" ]; then skip=; continue; fi
  case $word in
    --) [ "${words[-1]}" = -- ] || paths=yes; break ;;
    -) word='@{-1}' ;;
    --onto=*) word=${word#*=} ;;
    --orphan)
      [ "$verb" = switch ] && refuse "$(ask ls-files -- "${specs[@]}")"
      skip=yes; continue ;;
    -*) [[ " $values " == *" $word "* ]] && skip=yes; continue ;;
    *..*) ranges+=("$word"); continue ;;
  esac
  names+=("$word")
  found=$(ask rev-parse -q --verify "$word") && found=$(ask rev-parse -q --verify "$found^{commit}")
  if [ -z "$found" ] && [ ! -e "$word" ]; then  # git creates the branch from a remote
    found=$(ask for-each-ref --count=1 --format='%(objectname)' "refs/remotes/*/$word")
  fi
  if [ -n "$found" ]; then commits+=("$found"); else paths=yes; fi
done
case $verb in
  merge | rebase)  # without a commit: the upstream branch
    if [ -z "${commits[*]}" ] && ! [[ ${words[1]} =~ ^--(abort|continue|skip|quit|edit-todo)$ ]]; then
      found=$(ask rev-parse -q --verify '@{u}') && commits=("$found")
    fi
    if says --autostash || [ "$(ask config --bool "$verb.autoStash")" = true ]; then differ HEAD; fi ;;
esac

case $verb in
  # With paths HEAD does not move, and git names the file that it cannot write.
  checkout | switch) [ -n "$paths" ] || for one in "${commits[@]}"; do differ HEAD "$one"; done ;;
  reset)
    case " ${words[*]:1} " in  # git takes the beginning of a long option, too
      *" --h"* | *" --me"* | *" --k"*) differ "${commits[0]:-HEAD}" ;;
    esac ;;
  merge) for one in "${commits[@]}"; do differ "HEAD...$one"; done ;;
  rebase)
    tip=HEAD most=1
    [[ " ${words[*]:1}" == *" --onto"* ]] && most=2
    (( ${#commits[@]} > most )) && tip=${commits[-1]}  # the branch, which git checks out first
    for one in "${commits[@]}"; do differ HEAD "$one"; touched "$one..$tip"; done ;;
  pull) ask fetch "${names[@]}" > /dev/null && differ HEAD...FETCH_HEAD ;;
  cherry-pick | revert)
    for one in "${commits[@]}"; do touched "$one^!"; done
    for one in "${ranges[@]}"; do touched "$one"; done ;;
  stash)
    case ${words[1]} in
      pop | apply | branch)
        found=stash
        for word in "${words[@]:2}"; do
          if [[ $word =~ ^[0-9]+$ ]]; then found="stash@{$word}"
          elif ask rev-parse -q --verify "$word^2" > /dev/null; then found=$word; fi
        done
        differ "$found^1" "$found" ;;
      '' | push | save | -*) differ HEAD ;;
    esac
    if says -u || says --include-untracked; then
      ignored=$(mktemp)
      own=$(ask config --type=path core.excludesFile) || own=~/.config/git/ignore
      { cat "$own" 2> /dev/null; printf '%s\n' "${empty[@]}"; } > "$ignored"
      exec "$real" "${before[@]}" -c core.excludesFile="$ignored" "${words[@]}"
    fi ;;
  bisect)
    readarray -t known < <(ask for-each-ref --format='%(objectname)' refs/bisect)
    for one in "${commits[@]}" "${known[@]}"; do differ HEAD "$one"; touched "HEAD...$one"; done ;;
esac
exec "$real" "$@"
