# The options of `programs.kli`, declared once for home-manager, NixOS and mkConfiguredKli. Only
# declarations, and only of what some part of kli reads: what they lead to is in core.nix and
# nix/producer.nix. It needs `lib` and no package, so that its documentation can be made of nothing
# else (nix/docs.nix).
{ lib, ... }:
let
  inherit (lib) literalExpression mkOption types;
  inherit (import ../nix/spec.nix { inherit lib; }) couldBeKey providerKeys;
  values = import ../nix/values.nix { inherit lib; };

  # A type with a further condition and words of its own, which an error shows.
  narrowed =
    type: condition: description:
    types.addCheck type condition
    // {
      inherit description;
      descriptionClass = "noun";
    };
  spelled = "/…, ~/…, ./…, $HOME/… or $XDG_…/…, without ..";
  path = narrowed types.str values.path "path (${spelled})";
  deniedPath = narrowed types.str values.denied "path to hide (${spelled})";
  # A key that somebody writes in the place of its file is let through here, and refused in
  # nix/findings.nix: the error of a type would print it.
  secretPath = narrowed types.str (text: values.denied text || couldBeKey text) deniedPath.description;
  valuePath = narrowed types.str (text: values.path text || couldBeKey text) path.description;
  readOnlyPath = narrowed types.str values.readOnly "path to protect (${spelled})";
  writablePath = narrowed types.str values.writable "path to write (${spelled}; or a word for caches such as @cargo)";
  pattern = narrowed types.str values.pattern "pattern of paths to hide (${spelled}; with *, ? and [a-z] in a name, ** between slashes)";
  workspacePath = narrowed types.str values.inWorkspace "path in the working directory (name or ./name, without ..)";
  variables = narrowed types.str values.variables "name of an environment variable, or its beginning and a *";
  keyName = narrowed types.str values.keyName "name of a key (letters, digits and _)";
  port = types.ints.between 1 65535;
  byVariable =
    type:
    narrowed (types.attrsOf type) (
      set: lib.all values.variable (lib.attrNames set)
    ) "attribute set, by names of environment variables, of ${type.description}";
  byKey =
    type:
    narrowed (types.attrsOf type) (
      set: lib.all values.keyName (lib.attrNames set)
    ) "attribute set, by names of keys, of ${type.description}";

  dataDirectory = narrowed types.str values.ownPlace "path of a directory (/… or ~/…, without ..)";

  # Bytes, or a string such as "4G".
  size = types.either types.ints.positive (
    narrowed types.str values.size ''size such as "512M" or "4G"''
  );
  memorySize = narrowed size (amount: values.bytes amount >= 16777216) ''size of 16 MiB or more, in bytes or such as "4G"'';

  # What JSON can say; that of pkgs.formats.json, which needs a pkgs.
  json =
    types.nullOr (
      types.oneOf [
        types.bool
        types.int
        types.float
        types.str
        types.path
        (types.attrsOf json)
        (types.listOf json)
      ]
    )
    // {
      description = "JSON value";
      descriptionClass = "noun";
    };
  jsonObject = types.attrsOf json // {
    description = "JSON object";
    descriptionClass = "noun";
  };

  # The names that this very kli generates of itself.
  display = (lib.importJSON ../schema/settings.schema.json).properties;
  roles = lib.attrNames display.themes.additionalProperties.properties.colors.properties;
  actions = lib.attrNames display.keybindings.properties;
  bases = display.themes.additionalProperties.properties.base.enum;
  only = known: set: lib.all (name: lib.elem name known) (lib.attrNames set);
  theme = narrowed jsonObject (
    set:
    only [ "base" "colors" ] set
    && lib.elem (set.base or "auto") bases
    && builtins.isAttrs (set.colors or { })
    && only roles (set.colors or { })
    && lib.all builtins.isString (lib.attrValues (set.colors or { }))
  ) "theme (base: ${lib.concatStringsSep ", " bases}; colors: looks by role, of ${lib.concatStringsSep ", " roles})";
  bindings =
    narrowed (types.attrsOf (types.either types.str (types.listOf types.str))) (only actions)
      "attribute set, by actions (${lib.concatStringsSep ", " actions}), of keys or lists of keys";

  sandboxOptions = sandbox: {
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
      type = types.listOf writablePath;
      default = [ ];
      example = literalExpression ''[ "''${config.home.homeDirectory}/.cache/kli" "~/.cargo" ]'';
      description = ''
        Paths that may be written besides the working directory, `/tmp` and kli's own state.
        Everything else is read-only.

        A path is absolute or begins with `~/`, or with `$HOME/`, `$XDG_CACHE_HOME/`,
        `$XDG_CONFIG_HOME/`, `$XDG_DATA_HOME/`, `$XDG_STATE_HOME/` or `$XDG_RUNTIME_DIR/`; these
        are expanded when kli starts and never by a shell. A directory that does not exist is
        created below the home; elsewhere it is an error.

        `@cargo`, `@go`, `@nix`, `@npm`, `@pip` and `@uv` stand for the caches of these package
        managers, without their programs and settings. What lies in a cache is used by your next
        build outside the sandbox, too: a sandboxed program can put something there that runs then.
      '';
    };

    readOnlyPaths = mkOption {
      type = types.listOf readOnlyPath;
      default = [ ];
      example = [ "./vendor" ];
      description = ''
        Files and directories that stay read-only even inside a writable path. One below `/run` or
        `/tmp`, which the sandbox replaces, is shown there, read-only. Paths are spelled as in
        `denyRead`; one that does not exist is no error.
      '';
    };

    denyRead = mkOption {
      type = types.listOf deniedPath;
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

    denyReadGlobs = mkOption {
      type = types.listOf pattern;
      default = [ ];
      example = [ "./.env.*" "~/.config/*/credentials.json" ];
      description = ''
        Hides whatever these patterns name when kli starts, as `denyRead` does. What comes to match
        only later is not hidden. `*`, `?` and `[a-z]` stay within one name, `**` alone between slashes
        stands for any number of directories, and `\` takes the meaning from the next character.
      '';
    };

    denyEnv = mkOption {
      type = types.listOf variables;
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

    passEnv = mkOption {
      type = types.nullOr (types.listOf variables);
      default = null;
      example = [
        "EDITOR"
        "CARGO_*"
      ];
      description = ''
        With a list, only these environment variables are kept, and the few that every program
        needs: `PATH`, `HOME`, `USER`, `LOGNAME`, `SHELL`, `TERM`, `COLORTERM`, `NO_COLOR`, `LANG`,
        `LANGUAGE`, `LC_*`, `TZ`, the ones that say where things are inside (`PWD`, `TMPDIR`,
        `XDG_*`), and kli's own `KLI_*`. `null` keeps every variable that is not denied. A `*` at
        the end stands for any rest of the name.
      '';
    };

    env = mkOption {
      type = byVariable types.str;
      default = { };
      example = {
        CARGO_NET_OFFLINE = "true";
      };
      description = ''
        Environment variables to set in the sandbox, whatever the caller's are. Never write a key
        here: the store can be read by every user of the machine.
      '';
    };

    envFiles = mkOption {
      type = byVariable valuePath;
      default = { };
      example = {
        GITHUB_TOKEN = "/run/secrets/github-token";
      };
      description = ''
        Environment variables whose values are read from files before the sandbox starts; the last
        line end is left out. The files may lie where the sandbox shows nothing, such as
        `/run/secrets`. Every program in the sandbox can read such a variable; for the key of a
        provider there is `secrets`. A file that does not exist is an error.
      '';
    };

    secrets = mkOption {
      type = byKey secretPath;
      default = { };
      example = {
        ANTHROPIC_API_KEY = "/run/secrets/anthropic";
      };
      description = ''
        Keys of providers, by the name in `keyEnv`, and the files that hold them. They are read
        before the sandbox starts and handed to kli alone: commands that kli runs find them in no
        variable and no file, and the files themselves are hidden. A file that does not exist is an
        error.

        Paths are spelled as in `writablePaths`: where agenix has
        `''${XDG_RUNTIME_DIR}/agenix/anthropic`, write `$XDG_RUNTIME_DIR/agenix/anthropic`.
      '';
    };

    secretEnv = mkOption {
      type = types.listOf keyName;
      default = lib.subtractLists (lib.attrNames sandbox.env ++ lib.attrNames sandbox.envFiles) providerKeys;
      defaultText = literalExpression ''[ "ANTHROPIC_API_KEY" "OPENAI_API_KEY" ], without those that `env` or `envFiles` sets'';
      example = [
        "ANTHROPIC_API_KEY"
        "MY_PROVIDER_KEY"
      ];
      description = ''
        Environment variables that hold keys. They are taken out of the environment and handed to
        kli alone, as those of `secrets` are. By default these are the variables of the providers
        that kli knows; what you write here replaces the list.
      '';
    };

    git = mkOption {
      type = types.enum [
        "commit"
        "read-only"
        "unprotected"
      ];
      default = "commit";
      example = "read-only";
      description = ''
        How the repository's git directory is treated. With `commit`, work can be committed, and
        what makes git run code outside the sandbox later (hooks, configuration) cannot be written.
        With `read-only` nothing of it can be written. With `unprotected` the sandboxed program can
        plant a hook that your next git command runs.
      '';
    };

    protect = mkOption {
      type = types.listOf workspacePath;
      default = [
        ".envrc"
        ".kli/settings.json"
        ".kli/extensions"
      ];
      example = [
        ".envrc"
        ".vscode/tasks.json"
      ];
      description = ''
        Paths in the working directory that are read-only when they exist, because something
        outside the sandbox runs or trusts them. What you write here replaces the list.
      '';
    };

    allowSockets = mkOption {
      type = types.listOf path;
      default = [ ];
      example = [ "$XDG_RUNTIME_DIR/gnupg/S.gpg-agent" ];
      description = ''
        Unix sockets that can be used in the sandbox. The program behind a socket acts outside the
        sandbox: name none that does what kli must not.
      '';
    };

    localPorts = mkOption {
      type = types.listOf port;
      default = [ ];
      example = [ 11434 ];
      description = ''
        With `network = false`: TCP ports on which something listens on this machine's loopback,
        such as a local model, and that can be reached in the sandbox at `127.0.0.1` and `::1`.
      '';
    };

    allowNixDaemon = mkOption {
      type = types.bool;
      default = false;
      description = ''
        Whether the Nix daemon can be reached, so that `nix build` works. The daemon builds outside
        the sandbox and has the network, also with `network = false`.
      '';
    };

    allowAbstractSockets = mkOption {
      type = types.bool;
      default = false;
      description = ''
        Whether Unix sockets can be opened on kernels that cannot keep abstract ones apart while the
        network is on. With such a socket an X server, for one, can be reached, which is a full way
        out of the sandbox.
      '';
    };

    allowUserNamespaces = mkOption {
      type = types.bool;
      default = false;
      description = ''
        Whether the sandboxed programs may make user namespaces of their own, which browsers and
        rootless containers need. It opens much of the kernel to them.
      '';
    };

    tmp = mkOption {
      type = types.enum [
        "private"
        "host-subdir"
      ];
      default = "private";
      example = "host-subdir";
      description = ''
        Where the sandbox's own `/tmp` lies: in memory (`private`, at most an eighth of it), or on
        disk in a directory of this run that is removed at its end (`host-subdir`), for big builds.
      '';
    };

    limits = mkOption {
      type = types.nullOr (
        types.submodule {
          options = {
            tasks = mkOption {
              type = types.nullOr (narrowed types.int (count: count >= 2) "whole number of 2 or more");
              default = null;
              example = 512;
              description = "The most processes and threads in the sandbox.";
            };
            memory = mkOption {
              type = types.nullOr memorySize;
              default = null;
              example = "8G";
              description = ''
                The most memory, in bytes or with `K`, `M`, `G` or `T` (powers of 1024): of each
                process, and of all together where the machine lets kli have a cgroup.
              '';
            };
            fileSize = mkOption {
              type = types.nullOr size;
              default = null;
              example = "2G";
              description = "The most that any one file can grow to, written as in `memory`.";
            };
          };
        }
      );
      default = null;
      example = {
        tasks = 512;
        memory = "8G";
      };
      description = ''
        What may be used at most. A limit that cannot be enforced on this machine is an error when
        kli starts. `null`, and each part that is `null`, is no limit.
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
    defaultText = literalExpression "package, with the configuration baked in and the sandbox around it";
    description = ''
      The package that is installed: `package` with everything that is declared here applied. Its
      attribute `unsandboxed` is the same without the sandbox, `sandboxSpec` the specification as a
      file and `bakedConfig` the directory of the configuration.
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
    type = jsonObject;
    default = { };
    example = {
      model = "anthropic/claude-sonnet-4-5";
      capabilities = [
        "file/read"
        "process/exec"
      ];
    };
    description = ''
      Settings, with the keys of kli's `settings.json`. Your own `~/.config/kli/settings.json` and
      the command line come after them. kli itself checks them when the package is built.

      Never write a key here: the store can be read by every user of the machine. Values that look
      like one are refused. Name an environment variable, a file or a command instead (`keyEnv`,
      `keyFile`, `keyCommand`), or use `sandbox.secrets`.
    '';
  };

  profiles = mkOption {
    type = types.attrsOf jsonObject;
    default = { };
    example = {
      careful = {
        extends = "autonomous";
        approve = "writes";
        settings.budgets.turns = 20;
      };
    };
    description = ''
      Profiles by name, the same as `settings.profiles`; a name may stand in one of the two only.
      `kli --profile NAME` takes one.
    '';
  };

  themes = mkOption {
    type = types.attrsOf theme;
    default = { };
    example = {
      paper = {
        base = "light";
        colors = {
          error = "bold #af0000";
          dim = "plain";
        };
      };
    };
    description = ''
      Themes of the terminal interface by name, the same as `settings.themes`; a name may stand in
      one of the two only. `base` is `auto`, `dark` or `light`; `colors` are looks by role, like
      `bold red`, `208` or `#ff8800 on black`. `settings.theme` takes one.
    '';
  };

  keybindings = mkOption {
    type = bindings;
    default = { };
    example = {
      undo = "ctrl-x";
      redraw = [
        "ctrl-l"
        "ctrl-q"
      ];
      suspend = [ ];
    };
    description = ''
      Keys of the terminal interface by what they do, the same as `settings.keybindings`; an action
      may stand in one of the two only. A key is written like `ctrl-x` or `alt-enter`; an empty list
      leaves the action without one. What is chosen in the interface itself (`/keys`) comes after it.
    '';
  };

  policy = mkOption {
    type = jsonObject;
    default = { };
    example = {
      capabilities = [
        "tools/standard"
        "image/inspect"
      ];
      requireSandbox = true;
    };
    description = ''
      What no setting, project, profile or flag can override, with the keys of kli's `policy.json`.
      It is baked into the package; on NixOS it becomes `/etc/kli/policy.json` as well, and so binds
      every kli of the machine, whoever installed it.
    '';
  };

  context = mkOption {
    type = types.nullOr (types.either types.lines types.path);
    default = null;
    example = literalExpression "./AGENTS.md";
    description = ''
      Instructions for the model that hold in every directory, as a text or as a file. They are
      baked into the package and become part of what the model is told in every run.
    '';
  };

  dataDir = mkOption {
    type = types.nullOr dataDirectory;
    default = null;
    example = "~/data/kli";
    description = ''
      The directory of sessions and of what else kli keeps, in the place of `$XDG_STATE_HOME/kli`.
      It begins with `/` or `~/`. In the sandbox it is writable, unless `sandbox.stateDir` is false.
    '';
  };

  sandbox = mkOption {
    type = types.nullOr (types.submodule ({ config, ... }: { options = sandboxOptions config; }));
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
