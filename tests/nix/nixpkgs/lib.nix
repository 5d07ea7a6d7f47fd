# The functions of nixpkgs' lib that kli uses, each written anew after its documented meaning.
let
  lists = {
    inherit (builtins)
      attrNames
      all
      any
      concatLists
      concatMap
      elem
      filter
      genList
      head
      length
      sort
      tail
      ;
    last = list: builtins.elemAt list (builtins.length list - 1);
    take = count: list: builtins.genList (builtins.elemAt list) (
      if count < builtins.length list then count else builtins.length list
    );
    subtractLists = unwanted: builtins.filter (one: !builtins.elem one unwanted);
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
    attrByPath =
      path: default: set:
      if path == [ ] then
        set
      else if builtins.isAttrs set && set ? ${builtins.head path} then
        attrs.attrByPath (builtins.tail path) default set.${builtins.head path}
      else
        default;
    getAttrs = names: set: attrs.genAttrs names (name: set.${name});
    filterAttrs =
      keep: set:
      removeAttrs set (builtins.filter (name: !keep name set.${name}) (builtins.attrNames set));
  };
  strings = {
    optionalString = condition: text: if condition then text else "";
    concatStringsSep = builtins.concatStringsSep;
    hasPrefix = prefix: text: builtins.substring 0 (builtins.stringLength prefix) text == prefix;
    hasSuffix =
      suffix: text:
      let
        start = builtins.stringLength text - builtins.stringLength suffix;
      in
      start >= 0 && builtins.substring start (-1) text == suffix;
    removeSuffix =
      suffix: text:
      if strings.hasSuffix suffix text then
        builtins.substring 0 (builtins.stringLength text - builtins.stringLength suffix) text
      else
        text;
    # For separators of one character.
    splitString = separator: text: builtins.filter builtins.isString (builtins.split "[${separator}]" text);
    stringToCharacters = text: builtins.genList (at: builtins.substring at 1 text) (builtins.stringLength text);
    concatStrings = builtins.concatStringsSep "";
    concatMapStringsSep = separator: f: list: builtins.concatStringsSep separator (map f list);
    getExe' = package: name: "${package.bin or package}/bin/${name}";
    makeBinPath = packages: builtins.concatStringsSep ":" (map (package: "${package}/bin") packages);
  };
  modules = import ./modules.nix { inherit lib; };
  lib = lists // attrs // strings // modules // others;
  others = {
    importTOML = path: builtins.fromTOML (builtins.readFile path);
    importJSON = path: builtins.fromJSON (builtins.readFile path);
    warn = message: builtins.trace "warning: ${message}";
    showWarnings = warnings: value: builtins.foldl' (inner: one: builtins.trace "warning: ${one}" inner) value warnings;
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
  };
in
lib
