# git: read-only as a whole.
if [ -L "$workspace/.git" ]; then
  die "\`.git\` is a symbolic link, which cannot be protected: set \`git\` to \`unprotected\`, or put the directory in its place"
elif [ -e "$workspace/.git" ]; then
  path=$workspace/.git
  @RO@
fi
