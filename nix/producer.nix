# A configured kli: the declared settings baked in, and, with a sandbox, an entrypoint that starts
# the launcher before anything of kli runs.
{
  pkgs,
  kli,
  kli-sandbox,
  entrypoint,
}:
let
  inherit (pkgs) lib stdenv;
  spec = import ./spec.nix { inherit lib; };

  # Checks run the very programs that will read the files; a foreign target's cannot run here.
  canCheck = stdenv.buildPlatform.canExecute stdenv.hostPlatform;

  # From evaluated options. `prefix` is how the caller spells them, for messages.
  configure =
    {
      prefix,
      package,
      settings,
      profiles ? { },
      policy ? { },
      sandbox,
      context ? null,
      dataDir ? null,
      extraPackages,
      name ? "kli",
    }:
    let
      program = lib.getExe' package "kli";

      bakedConfig = pkgs.writeTextFile {
        name = "kli-baked";
        destination = "/settings.json";
        text = builtins.toJSON (spec.refuseSecrets "${prefix}settings" settings);
        checkPhase = lib.optionalString canCheck ''
          HOME="$TMPDIR" ${program} config check "$target"
        '';
      };

      sandboxSpec =
        if sandbox == null then
          null
        else if !stdenv.hostPlatform.isLinux then
          throw "kli: `${prefix}sandbox` needs Linux (bubblewrap), and this is ${stdenv.hostPlatform.system}; leave it out there, or set it to null"
        else
          pkgs.writeTextFile {
            name = "sandbox.json";
            text = spec.json (spec.refuseSecrets "${prefix}sandbox" sandbox);
            checkPhase = lib.optionalString canCheck ''
              ${kli-sandbox}/bin/kli-sandbox check "$target"
            '';
          };

      build =
        specFile:
        entrypoint {
          inherit name;
          command = "kli";
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
          variables.KLI_BAKED = "${bakedConfig}";
          path = lib.makeBinPath extraPackages;
          postInstall = lib.optionalString stdenv.hostPlatform.isLinux ''
            ln -s ${kli-sandbox}/bin/kli-sandbox "$out/bin/kli-sandbox"
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
        };
    in
    build sandboxSpec;

  options = import ../modules/options.nix { inherit lib pkgs; };
in
{
  inherit configure;

  # The arguments are checked by the declarations of the modules: same names, same types, same
  # defaults, and an unknown one is an error that names it.
  mkConfiguredKli =
    {
      name ? "kli",
      ...
    }@args:
    let
      evaluated = lib.evalModules {
        prefix = [ "mkConfiguredKli" ];
        modules = [
          {
            options = {
              inherit (options) settings sandbox extraPackages;
              package = lib.mkOption {
                type = lib.types.package;
                default = kli;
              };
            };
          }
          {
            _file = "the arguments of mkConfiguredKli";
            config = removeAttrs args [ "name" ];
          }
        ];
      };
    in
    configure {
      prefix = "mkConfiguredKli.";
      inherit name;
      inherit (evaluated.config)
        package
        settings
        sandbox
        extraPackages
        ;
    };
}
