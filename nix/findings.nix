# What is wrong with a configuration beyond the types of its options, and what is worth a warning.
# Each finding is a sentence that names the option and the repair. Pure, and the same for
# home-manager, NixOS and mkConfiguredKli: what only one of them knows is handed in.
{ lib }:
let
  inherit (builtins)
    any
    attrNames
    concatMap
    elem
    filter
    head
    isAttrs
    isList
    isString
    length
    match
    ;
  inherit (lib)
    concatMapStringsSep
    hasPrefix
    hasSuffix
    mapAttrsToList
    optional
    optionals
    removeSuffix
    subtractLists
    take
    ;
  values = import ./values.nix { inherit lib; };

  # The names of this very kli, as it generates them of itself.
  settingsSchema = lib.importJSON ../schema/settings.schema.json;
  policySchema = lib.importJSON ../schema/policy.schema.json;
  capability = (head settingsSchema.properties.capabilities.oneOf).anyOf;
  atoms = concatMap (choice: choice.enum or (optional (choice ? const) choice.const)) capability;
  atomForms = concatMap (choice: optional (choice ? pattern) choice.pattern) capability;
  isAtom = name: elem name atoms || any (form: match form name != null) atomForms;

  quoted = name: "`${name}`";
  names = concatMapStringsSep ", " quoted;
  objects = value: if isAttrs value then value else { };

  # The profiles that kli has of itself.
  builtinProfiles = [
    "interactive"
    "print"
    "read-only"
    "autonomous"
    "review"
  ];
  builtinThemes = [
    "auto"
    "dark"
    "light"
    "none"
  ];
  builtinKeys = {
    anthropic = "ANTHROPIC_API_KEY";
    openai = "OPENAI_API_KEY";
  };

  # ------------------------------------------------------------------ capabilities
  capabilityProblems =
    option: list:
    let
      shape = "`${option}` must be a string, or a list of strings and of sets with `atom` and one of `under` or `commands`; `[ ]` allows nothing";
      entry =
        value:
        let
          name = if isString value then value else value.atom or null;
          strange = subtractLists [
            "atom"
            "under"
            "commands"
          ] (attrNames value);
        in
        if !isString value && (!isAttrs value || !isString name || strange != [ ]) then
          [ shape ]
        else
          optional (!isAtom name)
            "`${option}`: unknown capability ${quoted name}; the names are ${names atoms}, `mcp/SERVER/TOOL` and `mcp/SERVER/*`";
    in
    if isString list then
      entry list
    else if isList list then
      concatMap entry list
    else
      [ shape ];

  # Every object of settings with the option that it is: the settings, and those of each profile.
  settingsIn =
    arguments:
    let
      ofProfiles =
        option: profiles:
        mapAttrsToList (name: profile: {
          option = "${option}.${name}.settings";
          value = objects ((objects profile).settings or { });
        }) (objects profiles);
    in
    [
      {
        option = "${arguments.prefix}settings";
        value = arguments.settings;
      }
    ]
    ++ ofProfiles "${arguments.prefix}settings.profiles" (arguments.settings.profiles or { })
    ++ ofProfiles "${arguments.prefix}profiles" arguments.profiles;

  # ------------------------------------------------------------------ places
  # Where a path leads, as a list of names from `/` where that is known, and otherwise from a mark
  # of its base. The XDG directories are taken at their defaults.
  place =
    home: path:
    let
      parts = values.parts path;
      rest = lib.tail parts;
      ownHome = if home == null then [ "~" ] else values.parts home;
      below =
        {
          "~" = ownHome;
          "$HOME" = ownHome;
          "$XDG_CACHE_HOME" = ownHome ++ [ ".cache" ];
          "$XDG_CONFIG_HOME" = ownHome ++ [ ".config" ];
          "$XDG_DATA_HOME" = ownHome ++ [
            ".local"
            "share"
          ];
          "$XDG_STATE_HOME" = ownHome ++ [
            ".local"
            "state"
          ];
          "$XDG_RUNTIME_DIR" = [ "$XDG_RUNTIME_DIR" ];
        };
    in
    if hasPrefix "/" path then
      parts
    else if hasPrefix "./" path then
      [ "." ] ++ parts
    else
      # What is no path at all is told of elsewhere.
      (below.${head parts} or [ path ]) ++ rest;
  covers = outer: inner: take (length outer) inner == outer;

  # The trees that the jail replaces, and what of them it shows all the same.
  isReplaced =
    sandbox: home: path:
    let
      at = place home path;
      shown = [
        [
          "run"
          "booted-system"
        ]
        [
          "run"
          "current-system"
        ]
        [
          "run"
          "opengl-driver"
        ]
        [
          "run"
          "wrappers"
        ]
      ]
      ++ optional (home != null) (values.parts home)
      ++ map (place home) (
        sandbox.readOnlyPaths ++ filter (one: !hasPrefix "@" one) sandbox.writablePaths
      );
    in
    # sops-nix puts links there that lead into the runtime directory.
    match ".*/sops-nix/secrets/.*" path != null
    ||
      !any (tree: covers tree at) shown
      && any (tree: covers tree at) [
        [ "run" ]
        [ "tmp" ]
        [
          "var"
          "run"
        ]
        [
          "dev"
          "shm"
        ]
      ];

  # ------------------------------------------------------------------ the sandbox
  variableProblems =
    prefix: sandbox:
    let
      meant = name: pattern: if hasSuffix "*" pattern then hasPrefix (removeSuffix "*" pattern) name else name == pattern;
      keys = attrNames sandbox.secrets ++ sandbox.secretEnv;
      of =
        key:
        concatMap (
          name:
          optional (any (meant name) sandbox.denyEnv)
            "`${prefix}${key}` sets ${quoted name} and `${prefix}denyEnv` removes it: take it out of one of them"
          ++
            optional (elem name keys)
              "`${prefix}${key}` sets ${quoted name} for every program inside and `${prefix}${
                if sandbox.secrets ? ${name} then "secrets" else "secretEnv"
              }` keeps it from them: take it out of one of them"
        ) (attrNames sandbox.${key});
    in
    of "env"
    ++ of "envFiles"
    ++ map (
      name: "`${prefix}env` and `${prefix}envFiles` both set ${quoted name}: take it out of one of them"
    ) (filter (name: sandbox.env ? ${name}) (attrNames sandbox.envFiles));

  # What a hidden path takes with it.
  deniedProblems =
    arguments:
    let
      inherit (arguments) sandbox home prefix;
      # Only the variable's own name is certain; deniedWarnings knows the default.
      hidesState =
        path:
        if arguments.dataDir == null then
          elem (values.parts path) [
            [ "$XDG_STATE_HOME" ]
            [
              "$XDG_STATE_HOME"
              "kli"
            ]
          ]
        else
          covers (place home path) (place home arguments.dataDir);
      hides = sentence: path: "`${prefix}sandbox.denyRead` names ${quoted path}, ${sentence}";
      of =
        path:
        let
          at = place home path;
        in
        optional (at == [ "." ]) (
          hides "the working directory itself, so kli would not start: name what is to be hidden in it" path
        )
        ++ optional (covers at [
          "nix"
          "store"
        ]) (hides "which hides kli itself, so it would not start: name what is to be hidden in it" path)
        ++ optional (sandbox.stateDir && hidesState path) (
          hides "which hides the directory of kli's sessions, so kli would not start: set `${prefix}sandbox.stateDir` to false, or name less" path
        )
        ++
          optional
            (
              arguments.machinePolicy
              && covers at [
                "etc"
                "kli"
                "policy.json"
              ]
            )
            (
              hides "which hides the policy of this machine, so kli would end with an error: name less" path
            );
    in
    concatMap of sandbox.denyRead;

  deniedWarnings =
    arguments:
    let
      inherit (arguments) sandbox home prefix;
      ownHome = if home == null then [ "~" ] else values.parts home;
      hides = sentence: path: "`${prefix}sandbox.denyRead` names ${quoted path}, ${sentence}";
      of =
        path:
        let
          at = place home path;
        in
        optional
          (covers at (
            ownHome
            ++ [
              ".config"
              "kli"
            ]
          ))
          (
            hides "which hides your own settings of kli and the keys that it stores from kli itself; declare them here, and use `${prefix}sandbox.secrets`" path
          )
        ++
          optional
            (
              sandbox.stateDir
              && arguments.dataDir == null
              && !hasPrefix "$" path
              && covers at (
                ownHome
                ++ [
                  ".local"
                  "state"
                  "kli"
                ]
              )
            )
            (
              hides "where kli keeps its sessions unless XDG_STATE_HOME says otherwise; then it does not start: set `${prefix}sandbox.stateDir` to false, or name less" path
            )
        ++
          optional
            (
              at != [ "." ]
              && covers at [
                "."
                ".kli"
                "settings.json"
              ]
            )
            (
              hides "which hides the settings of a project; they can only narrow what kli may do, and hidden they narrow nothing" path
            );
    in
    concatMap of sandbox.denyRead;

  inStore =
    text:
    isString text
    && hasPrefix "/" text
    && covers (values.parts builtins.storeDir) (values.parts text);

  # Keys in the place of the files that hold them, and files that every user can read.
  secretFileProblems =
    prefix: sandbox:
    concatMap (
      option:
      concatMap (
        name:
        let
          file = sandbox.${option}.${name};
        in
        if !values.path file then
          [
            "`${prefix}sandbox.${option}.${name}` must be the path of a file, and what is written there looks like the key itself: take it out, and replace the key if it is a real one"
          ]
        else
          optional (inStore file)
            "`${prefix}sandbox.${option}.${name}` names ${quoted file}, a file of the store, which every user of the machine can read: keep the key out of the store, and name a file outside"
      ) (attrNames sandbox.${option})
    ) [
      "secrets"
      "envFiles"
    ];

  # A path without quotes is copied to the store as soon as it is written into a file there.
  keyFileProblems =
    { option, value }:
    lib.concatLists (
      mapAttrsToList (
        name: provider:
        let
          file = (objects provider).keyFile or null;
        in
        if builtins.isPath file || isAttrs file && file ? outPath then
          [
            "`${option}.providers.${name}.keyFile` is a path of Nix, and the file would be copied to the store, where every user of the machine can read it: write the path as a string, in quotes"
          ]
        else
          optional (inStore file)
            "`${option}.providers.${name}.keyFile` names ${quoted file}, a file of the store, which every user of the machine can read: keep the key out of the store, and name a file outside"
      ) (objects (value.providers or { }))
    );

  # A kli that comes with a configuration of its own, which its entrypoint puts in the place of this.
  packageProblems =
    arguments:
    let
      inherit (arguments) prefix package;
      lost =
        optional (arguments.settings != { }) "settings"
        ++ optional (arguments.profiles != { }) "profiles"
        ++ optional (arguments.themes != { }) "themes"
        ++ optional (arguments.keybindings != { }) "keybindings"
        ++ optional (arguments.policy != { }) "policy"
        ++ optional (arguments.context != null) "context"
        ++ optional (arguments.dataDir != null) "dataDir"
        ++ optional (arguments.sandbox != null && package.sandboxSpec or null != null) "sandbox";
    in
    optional (package != null && package ? bakedConfig && lost != [ ])
      "`${prefix}package` is a kli that is configured already, which puts its own configuration in the place of ${
        names (map (option: "${prefix}${option}") lost)
      }: name the kli that it was made of, or leave these out";

  # Providers whose key kli could not read inside.
  keyFileWarnings =
    arguments:
    let
      inherit (arguments) sandbox home prefix;
      provided = attrNames sandbox.secrets ++ attrNames sandbox.envFiles ++ attrNames sandbox.env;
      of =
        { option, value }:
        lib.concatLists (
          mapAttrsToList (
            name: provider:
            let
              file = (objects provider).keyFile or null;
              key = (objects provider).keyEnv or builtinKeys.${name} or null;
              remedy =
                if !isString key then
                  "give the provider a `keyEnv`, and name the file in `${prefix}sandbox.secrets` under it"
                else
                  "name the file in `${prefix}sandbox.secrets.${key}`, which hands the key to kli alone, or in `${prefix}sandbox.envFiles.${key}`";
              isHidden = any (
                denied: covers (place home denied) (place home file)
              ) (sandbox.denyRead ++ lib.attrValues sandbox.secrets);
              warn = because: [
                "`${option}.providers.${name}.keyFile` names ${quoted file}, ${because}: ${remedy}, and leave `keyFile` out"
              ];
            in
            if !isString file || !values.path file || elem key provided then
              [ ]
            else if isReplaced sandbox home file then
              warn "which is not there inside the sandbox"
            else if isHidden then
              warn "which the sandbox hides"
            else
              [ ]
          ) (objects (value.providers or { }))
        );
    in
    concatMap of (settingsIn arguments);

  whole =
    arguments:
    {
      profiles = { };
      themes = { };
      keybindings = { };
      policy = { };
      sandbox = null;
      dataDir = null;
      context = null;
      package = null;
      # The home directory of the only user, where the surface knows one.
      home = null;
      # Whether `policy` becomes the machine's.
      machinePolicy = false;
    }
    // arguments;

  # What makes the configuration unusable.
  problems =
    given:
    let
      arguments = whole given;
      inherit (arguments)
        prefix
        settings
        profiles
        themes
        keybindings
        policy
        sandbox
        ;
    in
    optional (sandbox != null && !arguments.isLinux)
      "`${prefix}sandbox` needs Linux (bubblewrap), and this is ${arguments.system}; leave it out there, or set it to null"
    ++ concatMap (
      { option, value }:
      optionals (value ? capabilities) (capabilityProblems "${option}.capabilities" value.capabilities)
    ) (settingsIn arguments)
    ++ concatMap keyFileProblems (settingsIn arguments)
    ++ packageProblems arguments
    ++ optionals (policy ? capabilities) (
      capabilityProblems "${prefix}policy.capabilities" policy.capabilities
    )
    ++ map (
      key:
      "`${prefix}policy.${key}` is no key of a policy; the keys are ${
        names (attrNames (removeAttrs policySchema.properties [ "$schema" ]))
      }"
    ) (subtractLists (attrNames policySchema.properties) (attrNames policy))
    ++ map (
      name:
      "the profile ${quoted name} is in `${prefix}profiles` and in `${prefix}settings.profiles`: take it out of one of them"
    ) (filter (name: (objects (settings.profiles or { })) ? ${name}) (attrNames profiles))
    ++ map (
      name: "`${prefix}profiles.${name}` has the name of a profile that is built in: take another one"
    ) (filter (name: elem name builtinProfiles) (attrNames profiles))
    ++ map (
      name:
      "the theme ${quoted name} is in `${prefix}themes` and in `${prefix}settings.themes`: take it out of one of them"
    ) (filter (name: (objects (settings.themes or { })) ? ${name}) (attrNames themes))
    ++ map (
      name: "`${prefix}themes.${name}` has the name of a theme that is built in: take another one"
    ) (filter (name: elem name builtinThemes) (attrNames themes))
    ++ map (
      name:
      "the action ${quoted name} is in `${prefix}keybindings` and in `${prefix}settings.keybindings`: take it out of one of them"
    ) (filter (name: (objects (settings.keybindings or { })) ? ${name}) (attrNames keybindings))
    ++ optionals (sandbox != null) (
      variableProblems "${prefix}sandbox." sandbox
      ++ secretFileProblems prefix sandbox
      ++ deniedProblems arguments
      ++
        optional (length sandbox.localPorts > 64)
          "`${prefix}sandbox.localPorts` names ${toString (length sandbox.localPorts)} ports, and at most 64 can be reached"
    );

  # What works, and not as it was meant.
  warnings =
    given:
    let
      arguments = whole given;
      inherit (arguments)
        prefix
        settings
        policy
        sandbox
        context
        ;
    in
    optional (isString context && !inStore context && match "[^\n]*" context != null && values.path context)
      "`${prefix}context` is the text ${quoted context}, and the model is told this text and not what a file of this name holds: for a file, write its path without quotes"
    ++ map (key: "`${prefix}settings.${key}` is no setting of this kli, which ignores it") (
      subtractLists (attrNames settingsSchema.properties) (attrNames settings)
    )
    ++ optional (sandbox == null && policy.requireSandbox or false == true)
      "`${prefix}policy.requireSandbox` lets kli run only in the sandbox, and `${prefix}sandbox` is null: kli would refuse every run; set `${prefix}sandbox`, `{ }` takes all defaults"
    ++ optionals (sandbox != null) (
      keyFileWarnings arguments
      ++ deniedWarnings arguments
      ++
        optional (sandbox.network && sandbox.localPorts != [ ])
          "`${prefix}sandbox.localPorts` has no effect while `${prefix}sandbox.network` is true: every port of this machine can be reached"
    );
in
{
  inherit atoms problems warnings;

  # The value, unless something is wrong with the configuration: for a caller that has no assertions.
  refuse =
    arguments: value:
    let
      found = problems arguments;
    in
    if found == [ ] then value else throw "kli: ${lib.concatStringsSep "\n" found}";
}
