
# Writable: the workspace and what the specification names.
masked=//
bound=//
path=$workspace
@RW@
@WRITABLE@
# Read-only: kli's configuration, what is named, what the host reads or runs.
if resolve "$xdg_config/kli"; then
  @RO@
fi
for wish in @READ_ONLY@; do
  if resolve "$wish"; then
    @RO@
  fi
done
for wish in @HOLDERS@; do
  # A directory around a protected name could be renamed, unless it is a mount itself.
  if [ -d "$wish" ] && [ ! -L "$wish" ]; then
    path=$wish
    @RW@
  fi
done
for wish in @PROTECT@; do
  if [ -L "$wish" ]; then
    die "\`$wish\` is a symbolic link, which cannot be protected: put the file in its place, or take it out of \`protect\`"
  elif [ -e "$wish" ]; then
    path=$wish
    @RO@
  fi
done
@GIT@
# Hidden: last, so that nothing shows it again.
for wish in @HIDDEN@; do
  resolve "$wish" || continue
  case $workspace/ in
    "$path"/*) die "the workspace lies in the hidden \`$path\`: $elsewhere, or take it out of \`denyRead\`" ;;
  esac
  if within "$masked" "$path"; then continue; fi
  @VISIBLE@if [ -d "$path" ]; then
    @EMPTY_DIRECTORY@
  else
    @EMPTY_FILE@
  fi
  masked=$masked$path//
done
