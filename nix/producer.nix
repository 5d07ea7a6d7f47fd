# A configured kli: the declared configuration baked in, and, with a sandbox, an entrypoint that
# starts the launcher before anything of kli runs.
{
  pkgs,
  kli,
  kli-sandbox,
  entrypoint,
}:
let
  inherit (pkgs) lib stdenv;
  spec = import ./spec.nix { inherit lib; };
  findings = import ./findings.nix { inherit lib; };

  # Checks run the very programs that will read the files; a foreign target's cannot run here.
  canCheck = stdenv.buildPlatform.canExecute stdenv.hostPlatform;

  # kli reads no more of its baked instructions.
  longestContext = 64 * 1024;

  # Whether the instructions are a file of the store: of a package, of an input, or of `"${./a-path}"`.
  isStored =
    context:
    builtins.isAttrs context
    || builtins.isString context
      && lib.hasPrefix "${builtins.storeDir}/" context
      && builtins.match "[^\n]*" context != null;

  # The instructions as a text, from a text or a file; those of the store are left to the build.
  contextText =
    prefix: context:
    let
      text = if builtins.isPath context then builtins.readFile context else context;
    in
    if builtins.stringLength text > longestContext then
      throw "kli: `${prefix}context` is longer than ${toString longestContext} bytes, and kli would not read it; shorten it, or let it name files"
    else
      spec.refuseSecrets "${prefix}context" text;

  # Whether a pattern of `denyEnv` takes this variable away.
  takes =
    variable: pattern:
    pattern == variable
    || lib.hasSuffix "*" pattern && lib.hasPrefix (lib.removeSuffix "*" pattern) variable;

  # What the entrypoint sets must arrive: without it, kli would run without its policy.
  refuseOwnVariables =
    prefix: own: sandbox:
    let
      touching =
        variable:
        lib.optional (lib.any (takes variable) sandbox.denyEnv) "denyEnv"
        ++ lib.optional (sandbox.env ? ${variable}) "env"
        ++ lib.optional (sandbox.envFiles ? ${variable}) "envFiles"
        ++ lib.optional (sandbox.secrets ? ${variable}) "secrets"
        ++ lib.optional (lib.elem variable sandbox.secretEnv) "secretEnv";
      found = lib.concatMap (
        variable: map (option: { inherit variable option; }) (touching variable)
      ) own;
      first = lib.head found;
    in
    if found == [ ] then
      sandbox
    else
      throw "kli: `${prefix}sandbox.${first.option}` changes `${first.variable}`, the variable by which kli finds what is configured here; leave it out, and write names where a pattern covers it";

  # From evaluated options. `prefix` is how the caller spells them, for messages.
  configure =
    {
      prefix,
      package,
      settings,
      profiles ? { },
      themes ? { },
      keybindings ? { },
      policy ? { },
      sandbox,
      context ? null,
      extraPackages,
      dataDir ? null,
      name ? "kli",
    }:
    let
      program = lib.getExe' package "kli";

      bakedConfig =
        pkgs.runCommand "kli-baked"
          {
            settings = builtins.toJSON (
              spec.refuseSecrets "${prefix}settings" settings
              // lib.optionalAttrs (profiles != { }) {
                profiles = settings.profiles or { } // spec.refuseSecrets "${prefix}profiles" profiles;
              }
              // lib.optionalAttrs (themes != { }) {
                themes = settings.themes or { } // spec.refuseSecrets "${prefix}themes" themes;
              }
              // lib.optionalAttrs (keybindings != { }) {
                keybindings = settings.keybindings or { } // spec.refuseSecrets "${prefix}keybindings" keybindings;
              }
            );
            policy = builtins.toJSON (spec.refuseSecrets "${prefix}policy" policy);
            context = if context == null || isStored context then "" else contextText prefix context;
            contextFile = if isStored context then "${context}" else "";
            passAsFile = [
              "settings"
              "policy"
              "context"
            ];
          }
          ''
            mkdir "$out"
            cp "$settingsPath" "$out/settings.json"
            ${lib.optionalString (policy != { }) ''cp "$policyPath" "$out/policy.json"''}
            ${lib.optionalString (context != null) (
              if isStored context then
                ''cp "$contextFile" "$out/AGENTS.md"''
              else
                ''cp "$contextPath" "$out/AGENTS.md"''
            )}
            ${lib.optionalString canCheck ''
              # Each file, for messages about it alone, and all together, as kli will read them.
              unset XDG_CONFIG_HOME XDG_STATE_HOME
              export HOME=$TMPDIR
              for file in "$out"/*.json; do
                ${program} config check "$file"
              done
              KLI_BAKED=$out ${program} config check
            ''}
          '';

      # The sandbox, with the state directory where kli has it.
      confined = refuseOwnVariables prefix ([ "KLI_BAKED" ] ++ lib.optional (dataDir != null) "KLI_STATE_DIR") (
        if dataDir == null || !sandbox.stateDir then
          sandbox
        else
          sandbox
          // {
            stateDir = false;
            writablePaths = sandbox.writablePaths ++ [ dataDir ];
          }
      );

      sandboxSpec =
        if sandbox == null then
          null
        else
          pkgs.writeTextFile {
            name = "sandbox.json";
            text = spec.json (spec.refuseSecrets "${prefix}sandbox" confined);
            checkPhase = lib.optionalString canCheck ''
              ${kli-sandbox}/bin/kli-sandbox check "$target"
            '';
          };

      # What every program of the package has: replaced, or taken away, whatever the caller's is.
      start = {
        variables = {
          KLI_BAKED = "${bakedConfig}";
          KLI_STATE_DIR = dataDir;
        };
        path = lib.makeBinPath extraPackages;
      };

      # For the side outside: it changes what the jail must not, and knows no model and no tool.
      admin = entrypoint (
        start
        // {
          name = "${name}-admin";
          command = "kli-admin";
          words = [ program ];
          called = "kli-admin";
        }
      );

      build =
        specFile:
        entrypoint (
          start
          // {
            inherit name;
            command = "kli";
            confines = specFile != null;
            words =
              lib.optionals (specFile != null) [
                "${kli-sandbox}/bin/kli-sandbox"
                "run"
                "--spec"
                "${specFile}"
                "--bwrap"
                "${pkgs.bubblewrap}/bin/bwrap"
                "--"
              ]
              ++ [ program ];
            postInstall = ''
              ln -s ${admin}/bin/kli-admin "$out/bin/kli-admin"
              ${lib.optionalString stdenv.hostPlatform.isLinux ''
                ln -s ${kli-sandbox}/bin/kli-sandbox "$out/bin/kli-sandbox"
              ''}
              if [ -d ${package}/share ]; then
                ln -s ${package}/share "$out/share"
              fi
            '';
            passthru = {
              unsandboxed = build null;
              inherit sandboxSpec bakedConfig;
            };
            meta = {
              inherit (kli.meta) license platforms;
              description =
                kli.meta.description
                + (if specFile == null then ", configured" else ", configured and confined");
              mainProgram = "kli";
            };
          }
        );
    in
    findings.refuse {
      inherit
        prefix
        settings
        profiles
        themes
        keybindings
        policy
        sandbox
        dataDir
        context
        package
        ;
      inherit (stdenv.hostPlatform) system isLinux;
    } (build sandboxSpec);

  options = import ../modules/options.nix { inherit lib pkgs; };
in
{
  inherit configure;

  # The arguments are checked by the declarations of the modules: same names, same types, same
  # defaults, and an unknown one is an error that names it.
  mkConfiguredKli =
    args:
    let
      evaluated = lib.evalModules {
        prefix = [ "mkConfiguredKli" ];
        modules = [
          {
            options = {
              inherit (options)
                settings
                profiles
                themes
                keybindings
                policy
                sandbox
                context
                extraPackages
                dataDir
                ;
              package = lib.mkOption {
                type = lib.types.package;
                default = kli;
              };
              # `-admin` comes behind it, and Nix takes 211 characters.
              name = lib.mkOption {
                type =
                  lib.types.addCheck lib.types.str (
                    text:
                    builtins.match "[A-Za-z0-9+_?=-][A-Za-z0-9+._?=-]*" text != null
                    && builtins.stringLength text <= 200
                  )
                  // {
                    description = "name of a derivation (letters, digits and +._?=-)";
                    descriptionClass = "noun";
                  };
                default = "kli";
              };
            };
          }
          {
            _file = "the arguments of mkConfiguredKli";
            config = args;
          }
        ];
      };
      judged = {
        prefix = "mkConfiguredKli.";
        inherit (evaluated.config)
          settings
          profiles
          themes
          keybindings
          policy
          sandbox
          dataDir
          context
          package
          ;
        inherit (stdenv.hostPlatform) system isLinux;
      };
    in
    lib.showWarnings (findings.warnings judged) configure {
      prefix = "mkConfiguredKli.";
      inherit (evaluated.config)
        name
        package
        settings
        profiles
        themes
        keybindings
        policy
        sandbox
        context
        extraPackages
        dataDir
        ;
    };
}
