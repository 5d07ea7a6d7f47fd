# A small module system: options with types, mkIf, mkMerge and priorities. Unknown options, wrong
# types, missing values and a second value of a read-only option are errors, in the words of the
# real one as far as tests compare them.
{ lib }:
let
  inherit (builtins)
    all
    any
    attrNames
    concatMap
    concatStringsSep
    elem
    filter
    head
    isAttrs
    isBool
    isFloat
    isFunction
    isInt
    isList
    isPath
    isString
    length
    mapAttrs
    toJSON
    ;

  show = concatStringsSep ".";
  typeOf = value: if isAttrs value then value._type or null else null;
  isDerivation = value: isAttrs value && (value.type or null) == "derivation";

  mkOption =
    {
      type,
      default ? null,
      defaultText ? null,
      example ? null,
      description ? null,
      readOnly ? false,
    }@declaration:
    declaration // { _type = "option"; };
  mkOverride = priority: content: {
    _type = "override";
    inherit priority content;
  };
  mkIf = condition: content: {
    _type = "if";
    inherit condition content;
  };
  mkMerge = contents: {
    _type = "merge";
    inherit contents;
  };
  plain = 100;
  mkOptionDefault = mkOverride 1500;

  # Conditions and priorities of a set of definitions, moved to its members: a condition may need
  # other options, so it is looked at only where a value is wanted.
  pushDown =
    value:
    {
      merge = concatMap pushDown value.contents;
      "if" = map (mapAttrs (_: mkIf value.condition)) (pushDown value.content);
      override = map (mapAttrs (_: mkOverride value.priority)) (pushDown value.content);
    }
    .${toString (typeOf value)} or [ value ];

  # The definitions of one option as `{ priority; value; }`.
  discharge =
    priority: value:
    {
      merge = concatMap (discharge priority) value.contents;
      "if" = if value.condition then discharge priority value.content else [ ];
      override = discharge value.priority value.content;
    }
    .${toString (typeOf value)} or [ { inherit priority value; } ];

  # A module as `{ key; imports; options; config; }`.
  normalise =
    arguments: module:
    let
      loaded = if isPath module then import module else module;
      called = if isFunction loaded then loaded arguments else loaded;
      structured = called ? options || called ? config || called ? imports;
      known = [
        "_file"
        "key"
        "imports"
        "options"
        "config"
      ];
      foreign = filter (name: !elem name known) (attrNames called);
    in
    if structured && foreign != [ ] then
      throw "a module has the unsupported attribute `${head foreign}'"
    else
      {
        key = called.key or null;
        imports = called.imports or [ ];
        options = called.options or { };
        config =
          if structured then
            called.config or { }
          else
            removeAttrs called [
              "_file"
              "key"
            ];
      };

  # All modules with their imports, each key once.
  collect =
    arguments: seen: modules:
    builtins.foldl' (
      state: module:
      let
        this = normalise arguments module;
        inner = collect arguments (
          state.seen ++ lib.optional (this.key != null) this.key
        ) this.imports;
      in
      if this.key != null && elem this.key state.seen then
        state
      else
        {
          seen = inner.seen;
          modules = state.modules ++ inner.modules ++ [ this ];
        }
    ) { inherit seen; modules = [ ]; } modules;

  declare =
    path: left: right:
    left
    // mapAttrs (
      name: value:
      if !left ? ${name} then
        value
      else if typeOf value == "option" || typeOf left.${name} == "option" then
        throw "The option `${show (path ++ [ name ])}' is already declared."
      else
        declare (path ++ [ name ]) left.${name} value
    ) right;

  evalModules =
    {
      modules,
      prefix ? [ ],
      specialArgs ? { },
    }:
    let
      arguments = specialArgs // {
        inherit config options;
        lib = lib // self;
      };
      all' = (collect arguments [ ] modules).modules;
      options = builtins.foldl' (declare prefix) { } (map (module: module.options) all');
      definitions = map (module: module.config) all';

      membersOf = name: sets: concatMap (set: lib.optional (set ? ${name}) set.${name}) sets;
      unknown =
        path: tree: values:
        let
          sets = concatMap pushDown values;
        in
        concatMap (
          set:
          concatMap (name: lib.optional (!tree ? ${name}) (path ++ [ name ])) (attrNames set)
        ) sets
        ++ concatMap (
          name:
          lib.optionals (typeOf tree.${name} != "option") (
            unknown (path ++ [ name ]) tree.${name} (membersOf name sets)
          )
        ) (attrNames tree);
      values =
        path: tree: given:
        let
          sets = concatMap pushDown given;
        in
        mapAttrs (
          name: member:
          (if typeOf member == "option" then valueOf else values) (path ++ [ name ]) member (
            membersOf name sets
          )
        ) tree;

      strange = unknown prefix options definitions;
      config =
        if strange == [ ] then
          values prefix options definitions
        else
          throw "The option `${show (head strange)}' does not exist.";
    in
    {
      inherit config;
      options = placed prefix options;
    };

  # The declarations, each with its place.
  placed =
    path:
    mapAttrs (
      name: member:
      if typeOf member == "option" then
        member // { loc = path ++ [ name ]; }
      else
        placed (path ++ [ name ]) member
    );

  optionAttrSetToDocList =
    options:
    concatMap (
      member:
      if typeOf member == "option" then
        [
          (
            {
              inherit (member) loc;
              name = show member.loc;
              description = member.description or null;
              type = member.type.description;
              readOnly = member.readOnly or false;
              internal = false;
              visible = true;
            }
            // lib.optionalAttrs (member ? example) { example = rendered member.example; }
            // lib.optionalAttrs (member ? defaultText || member ? default) {
              default = rendered (member.defaultText or member.default);
            }
          )
        ]
        ++ optionAttrSetToDocList ((member.type.getSubOptions or (_: { })) member.loc)
      else
        optionAttrSetToDocList member
    ) (builtins.attrValues options);

  # A value as Nix would write it.
  rendered = value: if typeOf value == "literalExpression" then value else self.literalExpression (pretty "" value);
  pretty =
    indent: value:
    let
      deeper = "\n${indent}  ";
      lines = filter isString (builtins.split "\n" value);
      escape = builtins.replaceStrings [ "\\" "\"" "\${" ] [ "\\\\" "\\\"" "\\\${" ];
      name = text: if builtins.match "[a-zA-Z_][a-zA-Z0-9_'-]*" text != null then text else toJSON text;
      within = open: close: items: "${open}${deeper}${concatStringsSep deeper items}\n${indent}${close}";
    in
    if isString value && length lines == 1 then
      "\"${escape value}\""
    else if isInt value || value == null || isBool value then
      toJSON value
    else if value == [ ] then
      "[ ]"
    else if value == { } then
      "{ }"
    else if isList value then
      within "[" "]" (map (pretty "${indent}  ") value)
    else if isAttrs value then
      within "{" "}" (
        lib.mapAttrsToList (key: member: "${name key} = ${pretty "${indent}  " member};") value
      )
    else
      throw "a default or an example of this kind cannot be rendered";

  valueOf =
    path: option: given:
    let
      found =
        concatMap (discharge plain) given
        ++ lib.optional (option ? default) {
          priority = 1500;
          value = option.default;
        };
      strongest = builtins.foldl' (low: one: if one.priority < low then one.priority else low) 9999 found;
      used = map (one: one.value) (filter (one: one.priority == strongest) found);
      set = filter (one: one.priority < 1500) found;
    in
    if option.readOnly or false && length set > 1 then
      throw "The option `${show path}' is read-only, but it's set multiple times."
    else if found == [ ] then
      throw "The option `${show path}' was accessed but has no value defined. Try setting the option."
    else
      typed option.type path used;

  typed =
    type: path: used:
    let
      wrong = filter (value: !type.check value) used;
    in
    if wrong != [ ] then
      throw "A definition for option `${show path}' is not of type `${type.description}'."
    else
      type.merge path used;

  same =
    path: used:
    if all (value: value == head used) used then
      head used
    else
      throw "The option `${show path}' has conflicting definition values.";
  # How a type is named inside the name of another one.
  phrase = classes: type: if elem (type.descriptionClass or null) classes then type.description else "(${type.description})";
  scalar = description: check: {
    inherit description check;
    descriptionClass = "noun";
    merge = same;
  };

  types = {
    bool = scalar "boolean" isBool;
    int = scalar "signed integer" isInt;
    float = scalar "floating point number" isFloat;
    str = scalar "string" isString;
    raw = scalar "raw value" (_: true);
    lines = scalar "strings concatenated with \"\\n\"" isString // {
      merge = _path: concatStringsSep "\n";
    };
    path = scalar "absolute path" (
      value:
      (isPath value || isString value || isAttrs value && value ? outPath)
      && builtins.substring 0 1 (toString value) == "/"
    );
    package = scalar "package" isDerivation;
    enum =
      values:
      scalar "one of ${lib.concatMapStringsSep ", " toJSON values}" (value: elem value values)
      // {
        descriptionClass = if length values < 2 then "noun" else "conjunction";
      };
    ints = {
      positive = scalar "positive integer, meaning >0" (value: isInt value && value > 0) // {
        descriptionClass = "nonRestrictiveClause";
      };
      between =
        low: high:
        scalar "integer between ${toString low} and ${toString high} (both inclusive)" (
          value: isInt value && value >= low && value <= high
        );
    };
    addCheck = type: check: type // { check = value: type.check value && check value; };
    either = left: right: {
      description =
        if left.descriptionClass or null == "nonRestrictiveClause" then
          "${left.description}, or ${phrase [ "noun" "conjunction" ] right}"
        else
          "${phrase [ "noun" "conjunction" ] left} or ${phrase [ "noun" "conjunction" "composite" ] right}";
      descriptionClass = "conjunction";
      check = value: left.check value || right.check value;
      merge =
        path: used:
        if all left.check used then
          typed left path used
        else if all right.check used then
          typed right path used
        else
          same path used;
    };
    oneOf = list: builtins.foldl' types.either (head list) (builtins.tail list);
    nullOr = type: {
      description = "null or ${phrase [ "noun" "conjunction" ] type}";
      descriptionClass = "conjunction";
      check = value: value == null || type.check value;
      getSubOptions = type.getSubOptions or (_: { });
      merge =
        path: used:
        if all (value: value == null) used then
          null
        else if any (value: value == null) used then
          throw "The option `${show path}' is defined both null and not null."
        else
          typed type path used;
    };
    listOf = type: {
      description = "list of ${phrase [ "noun" "composite" ] type}";
      descriptionClass = "composite";
      check = isList;
      merge = path: used: map (value: typed type (path ++ [ "*" ]) [ value ]) (builtins.concatLists used);
    };
    attrsOf = type: {
      description = "attribute set of ${phrase [ "noun" "composite" ] type}";
      descriptionClass = "composite";
      check = value: isAttrs value && !isDerivation value;
      merge =
        path: used:
        let
          sets = concatMap pushDown used;
        in
        lib.genAttrs (concatMap attrNames sets) (
          name: typed type (path ++ [ name ]) (concatMap (set: lib.optional (set ? ${name}) set.${name}) sets)
        );
    };
    submodule = module: {
      description = "submodule";
      check = value: isAttrs value || isFunction value;
      getSubOptions =
        path:
        (evalModules {
          prefix = path;
          modules = [ module ];
        }).options;
      merge =
        path: used:
        (evalModules {
          prefix = path;
          modules = [ module ] ++ map (value: if isFunction value then value else { config = value; }) used;
        }).config;
    };
  };

  self = {
    inherit
      evalModules
      optionAttrSetToDocList
      mkOption
      mkIf
      mkMerge
      mkOverride
      mkOptionDefault
      types
      ;
    mkDefault = mkOverride 1000;
    mkForce = mkOverride 50;
    mkEnableOption =
      name:
      mkOption {
        type = types.bool;
        default = false;
        example = true;
        description = "Whether to enable ${name}.";
      };
    literalExpression = text: {
      _type = "literalExpression";
      inherit text;
    };
  };
in
self
