# The functions of nixpkgs' lib that kli uses, each written anew after its documented meaning.
let
  lists = {
    inherit (builtins)
      attrNames
      concatLists
      concatMap
      genList
      length
      sort
      ;
    optional = condition: value: if condition then [ value ] else [ ];
    optionals = condition: values: if condition then values else [ ];
    imap0 = f: list: builtins.genList (index: f index (builtins.elemAt list index)) (builtins.length list);
  };
  attrs = {
    inherit (builtins) attrValues mapAttrs;
    optionalAttrs = condition: set: if condition then set else { };
    genAttrs =
      names: f:
      builtins.listToAttrs (
        map (name: {
          inherit name;
          value = f name;
        }) names
      );
    mapAttrsToList = f: set: map (name: f name set.${name}) (builtins.attrNames set);
    getAttrs = names: set: attrs.genAttrs names (name: set.${name});
    filterAttrs =
      keep: set:
      removeAttrs set (builtins.filter (name: !keep name set.${name}) (builtins.attrNames set));
  };
  strings = {
    optionalString = condition: text: if condition then text else "";
    concatStrings = builtins.concatStringsSep "";
    concatMapStringsSep = separator: f: list: builtins.concatStringsSep separator (map f list);
    getExe' = package: name: "${package.bin or package}/bin/${name}";
    makeBinPath = packages: builtins.concatStringsSep ":" (map (package: "${package}/bin") packages);
  };
  modules = import ./modules.nix { lib = lists // attrs // strings; };
in
lists
// attrs
// strings
// modules
// {
  importTOML = path: builtins.fromTOML (builtins.readFile path);
  fileset = import ./fileset.nix;
  licenses.mit = {
    spdxId = "MIT";
    free = true;
  };
  platforms = {
    linux = [
      "x86_64-linux"
      "aarch64-linux"
    ];
    unix = [
      "x86_64-linux"
      "aarch64-linux"
      "aarch64-darwin"
    ];
  };
}
