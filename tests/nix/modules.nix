# What the three surfaces make of the same options: mkConfiguredKli, home-manager and NixOS. Each
# attribute is built or evaluated by scripts/stages/nix-modules.
{
  lib,
  kli,
  host,
  probe,
  hard,
  homeFor,
  nixosFor,
}:
let
  inherit (host) system home hidden;

  # The options on each surface: what comes out, and the package that it holds.
  onEach =
    onSystem: options:
    let
      enabled.programs.kli = {
        enable = true;
        package = probe;
      }
      // options;
      homeConfiguration = homeFor onSystem [ enabled ];
      nixosConfiguration = nixosFor onSystem [ enabled ];
      configured = kli.lib.${onSystem}.mkConfiguredKli ({ package = probe; } // options);
    in
    {
      home = {
        whole = homeConfiguration.activationPackage;
        kli = homeConfiguration.config.programs.kli.finalPackage;
      };
      nixos = {
        whole = nixosConfiguration.config.system.build.toplevel;
        kli = nixosConfiguration.config.programs.kli.finalPackage;
      };
      producer = {
        whole = configured;
        kli = configured;
      };
    };
  here = onEach system;

  key = "sk-ant-api03-0123456789abcdef";
  path = "(/…, ~/…, ./…, $HOME/… or $XDG_…/…, without ..)";
  notOf = option: type: "A definition for option `${option}' is not of type `${type}'";
  unknown = option: "The option `${option}' does not exist";
  secret = option: reason: "kli: `${option}` looks like a secret: ${reason}";
  issued = "the value has the form of an issued key";

  # Options that must be refused, and the words for it; `p` is how the surface spells them.
  mistakes = {
    misspeltOption = {
      options.sandbx = { };
      says = p: unknown "${p}sandbx";
    };
    misspeltKey = {
      options.sandbox.netwrok = false;
      says = p: unknown "${p}sandbox.netwrok";
    };
    misspeltLimit = {
      options.sandbox.limits.task = 1;
      says = p: unknown "${p}sandbox.limits.task";
    };
    aText = {
      options.sandbox.network = "false";
      says = p: notOf "${p}sandbox.network" "boolean";
    };
    noList = {
      options.sandbox.denyRead = "~/.aws";
      says = p: notOf "${p}sandbox.denyRead" "list of path to hide ${path}";
    };
    relative = {
      options.sandbox.denyRead = [ ".aws" ];
      says = p: notOf "${p}sandbox.denyRead.*" "path to hide ${path}";
    };
    unknownBase = {
      options.sandbox.allowSockets = [ "$SECRETS/socket" ];
      says = p: notOf "${p}sandbox.allowSockets.*" "path ${path}";
    };
    everythingWritable = {
      options.sandbox.writablePaths = [ "/" ];
      says = p: notOf "${p}sandbox.writablePaths.*" "path to write (/…, ~/…, ./…, $HOME/… or $XDG_…/…, without ..; or a word for caches such as @cargo)";
    };
    aFileOfTheRepository = {
      options.sandbox.denyRead = [ ./probe.sh ];
      says = p: notOf "${p}sandbox.denyRead.*" "path to hide ${path}";
    };
    badPattern = {
      options.sandbox.denyReadGlobs = [ "~/[a" ];
      says = p: notOf "${p}sandbox.denyReadGlobs.*" "pattern of paths to hide (/…, ~/…, ./…, $HOME/… or $XDG_…/…, without ..; with *, ? and [a-z] in a name, ** between slashes)";
    };
    badVariable = {
      options.sandbox.env."A=B" = "x";
      says = p: notOf "${p}sandbox.env" "attribute set, by names of environment variables, of string";
    };
    badPort = {
      options.sandbox.localPorts = [ 0 ];
      says = p: notOf "${p}sandbox.localPorts.*" "integer between 1 and 65535 (both inclusive)";
    };
    settingsNoJson = {
      options.settings.model = _: "x";
      says = p: notOf "${p}settings.model" "JSON value";
    };
    themeWithoutSuchARole = {
      options.themes.own.colors.eror = "red";
      says = p: "option `${p}themes.own' is not of type `theme (base: auto, dark, light; colors";
    };
    themeOnNothing = {
      options.themes.own.base = "drak";
      says = p: "option `${p}themes.own' is not of type `theme (base: auto, dark, light;";
    };
    bindingOfNoAction = {
      options.keybindings.udno = "ctrl-x";
      says = p: "option `${p}keybindings' is not of type `attribute set, by actions (";
    };
    bindingOfANumber = {
      options.keybindings.undo = 5;
      says = p: "${p}keybindings";
    };
    dataNowhere = {
      options.dataDir = "data";
      says = p: notOf "${p}dataDir" "null or path of a directory (/… or ~/…, without ..)";
    };
    capability = {
      options.settings.capabilities = [ "file/raed" ];
      says = p: "`${p}settings.capabilities`: unknown capability `file/raed`; the names are `agent/spawn`,";
    };
    capabilityOfAProfile = {
      options.profiles.own.settings.capabilities = [ { atom = "file/wirte"; } ];
      says = p: "`${p}profiles.own.settings.capabilities`: unknown capability `file/wirte`; the names are";
    };
    capabilityOfThePolicy = {
      options.policy.capabilities = "all";
      says = p: "`${p}policy.capabilities`: unknown capability `all`; the names are";
    };
    keyOfThePolicy = {
      options.policy.denyTool = [ "bash" ];
      says = p: "`${p}policy.denyTool` is no key of a policy; the keys are `allowedAddresses`,";
    };
    contradiction = {
      options.sandbox = {
        env.A = "x";
        denyEnv = [ "A*" ];
      };
      says = p: "`${p}sandbox.env` sets `A` and `${p}sandbox.denyEnv` removes it: take it out of one of them";
    };
    hiddenWorkspace = {
      options.sandbox.denyRead = [ "./" ];
      says = p: "`${p}sandbox.denyRead` names `./`, the working directory itself, so kli would not start";
    };
    secretInSettings = {
      options.settings.providers.anthropic.headers.x-api-key = key;
      says = p: secret "${p}settings.providers.anthropic.headers.x-api-key" issued;
    };
    secretInAProfile = {
      options.profiles.own.settings.bash.env.TOKEN = key;
      says = p: secret "${p}profiles.own.settings.bash.env.TOKEN" issued;
    };
    secretInATheme = {
      options.themes.own.colors.error = key;
      says = p: secret "${p}themes.own.colors.error" issued;
    };
    secretInThePolicy = {
      options.policy.denyTools = [ key ];
      says = p: secret "${p}policy.denyTools.0" issued;
    };
    secretInTheContext = {
      options.context = "use ${key}";
      says = p: secret "${p}context" issued;
    };
    secretAsItsFile = {
      options.sandbox.secrets.ANTHROPIC_API_KEY = key;
      says = p: "`${p}sandbox.secrets.ANTHROPIC_API_KEY` must be the path of a file, and what is written there looks like the key itself";
    };
    keyFileOfTheRepository = {
      options.settings.providers.anthropic.keyFile = ./probe.sh;
      says = p: "`${p}settings.providers.anthropic.keyFile` is a path of Nix, and the file would be copied to the store";
    };
    configuredPackage = {
      options = {
        package = kli.lib.${system}.mkConfiguredKli { package = probe; };
        policy.requireSandbox = true;
      };
      says = p: "`${p}package` is a kli that is configured already, which puts its own configuration in the place of `${p}policy`";
    };
    secretInTheSandbox = {
      options.sandbox.env.MY_TOKEN = "0123456789abcdef0123456789abcdef";
      says = p: secret "${p}sandbox.env.MY_TOKEN" "`MY_TOKEN` holds a long string that looks like a key";
    };
  };

  doubts = {
    keyFile = {
      options = {
        settings.providers.anthropic.keyFile = "/run/secrets/anthropic";
        sandbox = { };
      };
      says = p: "`${p}settings.providers.anthropic.keyFile` names `/run/secrets/anthropic`, which is not there inside the sandbox: name the file in `${p}sandbox.secrets.ANTHROPIC_API_KEY`, which hands the key to kli alone, or in `${p}sandbox.envFiles.ANTHROPIC_API_KEY`, and leave `keyFile` out";
    };
    hiddenSettings = {
      options.sandbox.denyRead = [ "~/.config/kli" ];
      says = p: "`${p}sandbox.denyRead` names `~/.config/kli`, which hides your own settings of kli";
    };
    ports = {
      options.sandbox.localPorts = [ 11434 ];
      says = p: "`${p}sandbox.localPorts` has no effect while `${p}sandbox.network` is true";
    };
    setting = {
      options.settings.modle = "a/b";
      says = p: "`${p}settings.modle` is no setting of this kli, which ignores it";
    };
  };

  told = lib.mapAttrs (
    _: one: {
      home = one.says "programs.kli.";
      nixos = one.says "programs.kli.";
      producer = one.says "mkConfiguredKli.";
    }
  );
  wholes = lib.mapAttrs (_: one: lib.mapAttrs (_: surface: surface.whole) (here one.options));

  # A value for every option that is not what it is by default.
  everything = {
    settings.model = "replay/demo";
    profiles.own.extends = "review";
    settings.theme = "paper";
    themes.paper = {
      base = "light";
      colors.error = "bold #af0000";
    };
    keybindings = {
      undo = [
        "ctrl-x"
        "ctrl-_"
      ];
      suspend = [ ];
    };
    policy.denyTools = [ "bash" ];
    context = "be brief\n";
    sandbox = {
      network = false;
      nestedUserns = true;
      writablePaths = [ "@cargo" ];
      readOnlyPaths = [ "./vendor" ];
      denyRead = [ "~/.ssh" ];
      denyReadGlobs = [ "./.env.*" ];
      denyEnv = [ "AWS_*" ];
      passEnv = [ "EDITOR" ];
      env.CARGO_NET_OFFLINE = "true";
      git = "read-only";
      protect = [ "Makefile" ];
      allowSockets = [ "/run/docker.sock" ];
      localPorts = [ 11434 ];
      envFiles.TOKEN = "/run/secrets/token";
      allowNixDaemon = true;
      allowHomeWorkspace = true;
      allowAbstractSockets = true;
      secrets.MY_KEY = "/run/secrets/key";
      secretEnv = [ "OTHER_KEY" ];
      allowUserNamespaces = true;
      stateDir = false;
      tmp = "host-subdir";
      limits = {
        tasks = 512;
        memory = "8G";
      };
    };
  };

  # The real kli, with its key in a tree that the jail replaces.
  authenticated = options: kli.lib.${system}.mkConfiguredKli options;
  file = "${hidden}/anthropic";

  escaped =
    builtins.replaceStrings [ "\\" "*" "?" "[" "{" ] [ "\\\\" "\\*" "\\?" "\\[" "\\{" ];
  numbered =
    prefix: directory:
    builtins.listToAttrs (
      lib.imap0 (index: name: {
        name = "${prefix}${toString index}";
        value = "${home}/${directory}/${name}";
      }) hard
    );
in
{
  mistakes = wholes mistakes;
  mistakesSay = told mistakes;
  doubts = wholes doubts;
  doubtsSay = told doubts;
  everything = here everything;

  # kli itself installs on macOS; a sandbox there is refused.
  foreign =
    let
      surfaces = onSystem: options: lib.mapAttrs (_: surface: surface.whole) (onEach onSystem options);
    in
    {
      confined.aarch64-linux = surfaces "aarch64-linux" { sandbox = { }; };
      confined.aarch64-darwin = removeAttrs (surfaces "aarch64-darwin" { sandbox = { }; }) [ "nixos" ];
      plain.aarch64-darwin = removeAttrs (surfaces "aarch64-darwin" { }) [ "nixos" ];
    };

  # A kernel without user namespaces, and one whose programs need a profile.
  noNamespaces =
    (nixosFor system [
      {
        programs.kli = {
          enable = true;
          package = probe;
          sandbox = { };
        };
        security.allowUserNamespaces = false;
      }
    ]).config.system.build.toplevel;
  apparmor =
    (nixosFor system [
      {
        programs.kli = {
          enable = true;
          package = probe;
          sandbox = { };
        };
        security.apparmor.enable = true;
      }
    ]).config.security.apparmor.policies.kli-sandbox.profile;

  byKeyFile = authenticated {
    settings.providers.anthropic.keyFile = file;
    sandbox = { };
  };
  byEnvFile = authenticated { sandbox.envFiles.ANTHROPIC_API_KEY = file; };
  bySecret = authenticated { sandbox.secrets.ANTHROPIC_API_KEY = file; };

  # Awkward names in every option that takes a path.
  torture = kli.lib.${system}.mkConfiguredKli {
    package = probe;
    settings.note = hard;
    sandbox = {
      writablePaths = map (name: "${home}/w/${name}") hard ++ [ "${home}/rw" ];
      readOnlyPaths = map (name: "${home}/rw/${name}") hard;
      denyRead = map (name: "${home}/d/${name}") hard;
      denyReadGlobs = map (name: "${home}/g/[x]/${escaped name}") hard;
      protect = map (name: "./p/${name}") hard;
      allowSockets = map (name: "${home}/s/${name}") hard;
      envFiles = numbered "PROBE_FILE_" "e";
      secrets = numbered "PROBE_SECRET_" "k";
      env.PROBE_HARD = lib.concatStrings hard;
    };
  };
}
