# The options of `programs.kli`, declared once for home-manager, NixOS and mkConfiguredKli. Only
# declarations: what they lead to is in core.nix and nix/producer.nix.
{ lib, pkgs }:
let
  inherit (lib) literalExpression mkOption types;

  sandboxOptions = {
    network = mkOption {
      type = types.bool;
      default = true;
      description = ''
        Whether kli, and everything that it starts, can use the network. kli itself needs it to
        reach a model that is not on this machine. With `false` there is a loopback interface of
        its own and nothing else.

        The sandbox does not choose between hosts: whatever kli can read, it can send to any host
        while the network is on.
      '';
    };

    nestedUserns = mkOption {
      type = types.bool;
      default = false;
      description = ''
        Set this where kli runs inside another container that masks parts of `/proc`, so that the
        kernel refuses a new one: the container's `/proc` is then used as it is. Leave it off
        otherwise. If it is needed, kli does not start and says so.
      '';
    };

    writablePaths = mkOption {
      type = types.listOf types.str;
      default = [ ];
      example = literalExpression ''[ "''${config.home.homeDirectory}/.cache/kli" "~/.cargo" ]'';
      description = ''
        Paths that may be written besides the working directory, `/tmp` and kli's own state.
        Everything else is read-only.

        A path is absolute or begins with `~/`, or with `$HOME/`, `$XDG_CACHE_HOME/`,
        `$XDG_CONFIG_HOME/`, `$XDG_DATA_HOME/`, `$XDG_STATE_HOME/` or `$XDG_RUNTIME_DIR/`; these
        are expanded when kli starts and never by a shell. A directory that does not exist is
        created below the home; elsewhere it is an error.
      '';
    };

    denyRead = mkOption {
      type = types.listOf types.str;
      default = [ ];
      example = literalExpression ''[ "''${config.home.homeDirectory}/.aws" "~/.ssh" "./.env" ]'';
      description = ''
        Files and directories to hide: a file reads as empty, a directory as an empty directory,
        and neither can be written. Paths are spelled as in `writablePaths`; `./…` is below the
        working directory. A path that does not exist is no error. The same path in
        `writablePaths` stays hidden.

        Everything not named here can be read, including other secrets of your home directory.
      '';
    };

    denyEnv = mkOption {
      type = types.listOf types.str;
      default = [ ];
      example = [
        "AWS_SECRET_ACCESS_KEY"
        "GITHUB_*"
      ];
      description = ''
        Names of environment variables that are removed before anything of the sandbox starts. A
        `*` at the end stands for any rest of the name.
      '';
    };

    stateDir = mkOption {
      type = types.bool;
      default = true;
      description = ''
        Whether kli's state directory (`$XDG_STATE_HOME/kli`, `~/.local/state/kli` by default) is
        created and writable, so that sessions can be continued. With `false`, sessions end with
        the process.
      '';
    };

    allowHomeWorkspace = mkOption {
      type = types.bool;
      default = false;
      description = ''
        Whether kli may be started in the home directory itself. The working directory is
        writable, so this lets kli change every dotfile and with it what your shell does next.
      '';
    };
  };
in
{
  enable = lib.mkEnableOption "kli, a coding agent for the terminal";

  package = mkOption {
    type = types.nullOr types.package;
    defaultText = literalExpression "the kli of this flake, built with your pkgs";
    example = literalExpression "pkgs.kli";
    description = ''
      The kli to use; its program is `bin/kli`. With `sandbox` this package is wrapped, never
      started without the sandbox. `null` installs nothing: for a kli that comes from elsewhere,
      which no other option of this module can then configure or confine.
    '';
  };

  finalPackage = mkOption {
    type = types.nullOr types.package;
    readOnly = true;
    defaultText = literalExpression "package, with the settings baked in and the sandbox around it";
    description = ''
      The package that is installed: `package` with `settings`, `extraPackages` and `sandbox`
      applied. Its attribute `unsandboxed` is the same without the sandbox, `sandboxSpec` the
      specification as a file and `bakedConfig` the directory of the settings.
    '';
  };

  extraPackages = mkOption {
    type = types.listOf types.package;
    default = [ ];
    example = literalExpression "[ pkgs.ripgrep pkgs.nodejs ]";
    description = ''
      Packages whose programs kli and the commands it runs find first in `PATH`.
    '';
  };

  settings = mkOption {
    inherit (pkgs.formats.json { }) type;
    default = { };
    example = {
      model = "anthropic/claude-sonnet-4-5";
      providers.anthropic.keyFile = "/run/secrets/anthropic";
    };
    description = ''
      Settings, with the keys of kli's `settings.json`. Your own `~/.config/kli/settings.json` and
      the command line come after them. kli itself checks them when the package is built.

      Never write a key here: the store can be read by every user of the machine. Values that look
      like one are refused. Name an environment variable, a file or a command instead (`keyEnv`,
      `keyFile`, `keyCommand`).
    '';
  };

  sandbox = mkOption {
    type = types.nullOr (types.submodule { options = sandboxOptions; });
    default = null;
    example = literalExpression ''
      {
        network = true;
        writablePaths = [ "''${config.home.homeDirectory}/.cache/kli" ];
        denyRead = [ "''${config.home.homeDirectory}/.aws" ];
        denyEnv = [ "AWS_SECRET_ACCESS_KEY" ];
      }
    '';
    description = ''
      What the whole kli process may touch. With a value (`{ }` takes all defaults) the installed
      `kli` starts in a sandbox that it cannot leave or widen: the working directory is writable,
      the rest of the file system is read-only, and what you name here is hidden. If the sandbox
      cannot be made, kli does not start. `null` starts kli without one. Linux only.
    '';
  };
}
