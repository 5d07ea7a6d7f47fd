# lib.fileset: unions, difference, toSource. A file set is here a predicate over paths; a member
# that does not exist is an error, as in nixpkgs.
let
  isSet = value: builtins.isAttrs value && (value._type or null) == "fileset";
  below = parent: path: path == parent || builtins.substring 0 (builtins.stringLength parent + 1) path == parent + "/";

  coerce =
    value:
    if isSet value then
      value
    else if !builtins.isPath value then
      throw "lib.fileset: a member is neither a path nor a file set"
    else if !builtins.pathExists value then
      throw "lib.fileset: the member `${toString value}` does not exist"
    else
      {
        _type = "fileset";
        # Files that belong to the set, and directories on the way to one.
        has = below (toString value);
        leadsTo = path: below path (toString value);
      };

  unions =
    members:
    let
      sets = map coerce members;
    in
    {
      _type = "fileset";
      has = path: builtins.any (set: set.has path) sets;
      leadsTo = path: builtins.any (set: set.leadsTo path) sets;
    };
  difference =
    positive: negative:
    let
      kept = coerce positive;
      dropped = coerce negative;
    in
    {
      _type = "fileset";
      has = path: kept.has path && !dropped.has path;
      inherit (kept) leadsTo;
    };
in
{
  inherit unions difference;
  toSource =
    { root, fileset }:
    let
      set = coerce fileset;
    in
    builtins.path {
      name = "source";
      path = root;
      filter = path: type: set.has path || (type == "directory" && set.leadsTo path);
    };
}
