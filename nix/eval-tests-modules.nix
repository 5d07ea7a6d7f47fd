# Evaluation tests of the two modules, with a stand-in for what home-manager and NixOS have, and
# packages that are nothing but names.
{ lib }:
let
  inherit (lib) mkOption types;
  spec = import ./spec.nix { inherit lib; };

  package = name: {
    type = "derivation";
    inherit name;
    outPath = "/nix/store/00000000000000000000000000000000-${name}";
  };
  kliFor = _pkgs: {
    kli = package "kli";
    kli-sandbox = package "kli-sandbox";
    configure = arguments: package "configured" // {
      inherit arguments;
      bakedConfig = "/nix/store/00000000000000000000000000000000-baked";
    };
  };
  pkgsOf = system: {
    stdenv.hostPlatform = {
      inherit system;
      isLinux = builtins.match ".*-linux" system != null;
    };
    writeText = name: text: package name // { inherit text; };
  };

  option =
    type: default:
    mkOption {
      inherit type default;
    };
  raw = option types.raw;
  common = {
    assertions = option (types.listOf types.raw) [ ];
    warnings = option (types.listOf types.str) [ ];
  };
  evaluate =
    system: options: module: config:
    (lib.evalModules {
      specialArgs.pkgs = pkgsOf system;
      modules = [
        { options = options // common; }
        module
        { inherit config; }
      ];
    }).config;
  homeOn =
    system:
    evaluate system {
      home = {
        homeDirectory = raw "/home/ada";
        packages = option (types.listOf types.package) [ ];
      };
    } (import ../modules/home-manager.nix { inherit kliFor; });
  home = kli: homeOn "x86_64-linux" { programs = { inherit kli; }; };
  nixosWith =
    more: kli:
    evaluate "x86_64-linux"
      {
        environment = {
          systemPackages = option (types.listOf types.package) [ ];
          etc = raw { };
        };
        boot = {
          kernel.sysctl = raw { };
          kernelPackages = raw { kernel = { }; };
        };
        security = {
          allowUserNamespaces = raw true;
          unprivilegedUsernsClone = raw false;
          apparmor = {
            enable = raw false;
            policies = raw { };
          };
        };
      }
      (import ../modules/nixos.nix { inherit kliFor; })
      (more // { programs = { inherit kli; }; });
  nixos = nixosWith { };

  failed = config: map (one: one.message) (lib.filter (one: !one.assertion) config.assertions);
  enabled = options: { enable = true; } // options;
  everything = enabled {
    settings.model = "a/b";
    profiles.own.extends = "review";
    themes.paper.base = "light";
    keybindings.undo = "ctrl-x";
    policy.denyTools = [ "bash" ];
    context = "be brief";
    dataDir = "~/data/kli";
    extraPackages = [ (package "extra") ];
    sandbox = {
      network = false;
      localPorts = [ 11434 ];
      denyRead = [ "~/.ssh" ];
      passEnv = [ "EDITOR" ];
      limits.tasks = 512;
    };
  };
  nothing = option: "programs.kli.package is null, so programs.kli.${option} would have no effect; set programs.kli.package, or leave programs.kli.${option} out";
  forbids =
    option: repair:
    "programs.kli.sandbox needs user namespaces for ordinary users, and ${option} forbids them; ${repair}, or set programs.kli.sandbox to null";
  confinedOn = more: failed (nixosWith more (enabled { sandbox = { }; }));
in
{
  "both modules install the one package" = {
    expr = map (one: one.name) (
      (home (enabled { })).home.packages ++ (nixos (enabled { })).environment.systemPackages
    );
    expected = [
      "configured"
      "configured"
    ];
  };
  "neither installs anything while it is not enabled" = {
    expr =
      let
        off = everything // {
          enable = false;
        };
      in
      (home off).home.packages
      ++ (nixos off).environment.systemPackages
      ++ lib.attrNames (nixos off).environment.etc
      ++ (home off).assertions
      ++ (nixos off).assertions;
    expected = [ ];
  };
  "the same options mean the same configuration" = {
    expr =
      (home everything).programs.kli.finalPackage.arguments
      == (nixos everything).programs.kli.finalPackage.arguments;
    expected = true;
  };
  "and everything that was said arrives" = {
    expr =
      let
        got = (home everything).programs.kli.finalPackage.arguments;
      in
      got
      // {
        package = got.package.name;
        extraPackages = map (one: one.name) got.extraPackages;
        sandbox = removeAttrs (builtins.fromJSON (spec.json got.sandbox)) [ "version" ] == got.sandbox;
      };
    expected = {
      prefix = "programs.kli.";
      package = "kli";
      settings.model = "a/b";
      profiles.own.extends = "review";
      themes.paper.base = "light";
      keybindings.undo = "ctrl-x";
      policy.denyTools = [ "bash" ];
      context = "be brief";
      dataDir = "~/data/kli";
      extraPackages = [ "extra" ];
      sandbox = true;
    };
  };
  "a package of one's own is wrapped, not replaced" = {
    expr =
      (home (enabled {
        package = package "mine";
        sandbox = { };
      })).programs.kli.finalPackage.arguments.package.name;
    expected = "mine";
  };
  "nothing is wrong with everything" = {
    expr = failed (home everything) ++ failed (nixos everything) ++ (home everything).warnings;
    expected = [ ];
  };

  "without a package nothing else can have an effect" = {
    expr = failed (home (everything // { package = null; }));
    expected = map nothing [
      "sandbox"
      "settings"
      "profiles"
      "themes"
      "keybindings"
      "policy"
      "context"
      "dataDir"
      "extraPackages"
    ];
  };
  "but for the machine's policy" = {
    expr = failed (
      nixos (enabled {
        package = null;
        policy.denyTools = [ "bash" ];
      })
    );
    expected = [ ];
  };
  "a sandbox on macOS is refused, kli alone is not" = {
    expr =
      failed (homeOn "aarch64-darwin" { programs.kli = enabled { sandbox = { }; }; })
      ++ failed (homeOn "aarch64-darwin" { programs.kli = enabled { }; });
    expected = [
      "`programs.kli.sandbox` needs Linux (bubblewrap), and this is aarch64-darwin; leave it out there, or set it to null"
    ];
  };
  "findings are assertions and warnings of both" = {
    expr =
      let
        wrong = enabled {
          settings.capabilities = "all";
          sandbox.localPorts = [ 1 ];
        };
        of = config: map (message: builtins.substring 0 60 message) (failed config ++ config.warnings);
      in
      of (home wrong) == of (nixos wrong) && lib.length (of (home wrong)) == 2;
    expected = true;
  };
  "only home-manager knows the home" = {
    expr =
      let
        wrong = enabled {
          sandbox.denyRead = [ "/home/ada/.config/kli" ];
        };
      in
      map (config: lib.length config.warnings) [
        (home wrong)
        (nixos wrong)
      ];
    expected = [
      1
      0
    ];
  };

  "the policy is the machine's" = {
    expr = (nixos everything).environment.etc;
    expected."kli/policy.json".source = "/nix/store/00000000000000000000000000000000-baked/policy.json";
  };
  "also where kli comes from elsewhere" = {
    expr =
      (nixos (enabled {
        package = null;
        policy.denyTools = [ "bash" ];
      })).environment.etc."kli/policy.json".source.text;
    expected = ''{"denyTools":["bash"]}'';
  };
  "and a key in it is refused there, too" = {
    expr =
      (builtins.tryEval
        (nixos (enabled {
          package = null;
          policy.denyTools = [ "sk-ant-api03-0123456789abcdef" ];
        })).environment.etc."kli/policy.json".source.text
      ).success;
    expected = false;
  };
  "without a policy there is no file" = {
    expr = (nixos (enabled { })).environment.etc;
    expected = { };
  };
  "the machine's policy cannot be hidden" = {
    expr = failed (
      nixos (enabled {
        policy.denyTools = [ "bash" ];
        sandbox.denyRead = [ "/etc/kli" ];
      })
    );
    expected = [
      "`programs.kli.sandbox.denyRead` names `/etc/kli`, which hides the policy of this machine, so kli would end with an error: name less"
    ];
  };

  "a kernel that forbids user namespaces is refused by the option that does it" = {
    expr =
      confinedOn { security.allowUserNamespaces = false; }
      ++ confinedOn { boot.kernel.sysctl."user.max_user_namespaces" = 0; }
      ++ confinedOn { boot.kernel.sysctl.user.max_user_namespaces = "0"; }
      ++ confinedOn { boot.kernel.sysctl."kernel.unprivileged_userns_clone" = false; }
      ++ confinedOn { boot.kernelPackages.kernel.isHardened = true; };
    expected = [
      (forbids "security.allowUserNamespaces = false" "set it to true")
      (forbids ''boot.kernel.sysctl."user.max_user_namespaces" = 0'' "take it out")
      (forbids ''boot.kernel.sysctl."user.max_user_namespaces" = 0'' "take it out")
      (forbids ''boot.kernel.sysctl."kernel.unprivileged_userns_clone" = 0'' "set security.unprivilegedUsernsClone to true")
      (forbids "the hardened kernel" "set security.unprivilegedUsernsClone to true")
    ];
  };
  "a kernel that allows them is not" = {
    expr =
      confinedOn { boot.kernel.sysctl."user.max_user_namespaces" = 1000; }
      ++ confinedOn { boot.kernel.sysctl."kernel.unprivileged_userns_clone" = true; }
      ++ confinedOn {
        boot.kernelPackages.kernel.isHardened = true;
        security.unprivilegedUsernsClone = true;
      }
      ++ failed (nixosWith { security.allowUserNamespaces = false; } (enabled { }));
    expected = [ ];
  };
  "AppArmor is told of the launcher" = {
    expr =
      (nixosWith { security.apparmor.enable = true; } (enabled {
        sandbox = { };
      })).security.apparmor.policies.kli-sandbox.profile;
    expected = ''
      abi <abi/4.0>,
      include <tunables/global>

      profile kli-sandbox /nix/store/00000000000000000000000000000000-kli-sandbox/bin/kli-sandbox flags=(unconfined) {
        userns,
      }
    '';
  };
  "only where it is asked for" = {
    expr =
      (nixosWith { security.apparmor.enable = true; } (enabled { })).security.apparmor.policies
      // (nixos (enabled { sandbox = { }; })).security.apparmor.policies;
    expected = { };
  };
}
