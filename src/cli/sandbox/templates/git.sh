# git: commits work, and what makes the host run code is read-only.
if [ -L "$workspace/.git" ]; then
  die "\`.git\` is a symbolic link, which cannot be protected: set \`git\` to \`unprotected\`, or put the directory in its place"
elif [ -d "$workspace/.git" ]; then
  path=$workspace/.git
  @RW@
  # One that is not there could be made inside.
  [ -e "$path/hooks" ] || mkdir -- "$path/hooks" || die "\`$path/hooks\` cannot be made"
  for part in hooks config config.worktree commondir gitdir info modules worktrees; do
    path=$workspace/.git/$part
    if [ -L "$path" ]; then
      die "\`$path\` is a symbolic link, which cannot be protected: put what it names in its place"
    elif [ -e "$path" ]; then
      @RO@
    fi
  done
elif [ -e "$workspace/.git" ]; then
  path=$workspace/.git
  @RO@
fi
