# Evaluation tests of what is wrong with a configuration beyond its types: every sentence as it is.
{ lib }:
let
  findings = import ./findings.nix { inherit lib; };
  options = import ../modules/options.nix { inherit lib; };

  # A configuration as a surface hands it in, with the sandbox at its defaults where one is named.
  given =
    {
      sandbox ? null,
      settings ? { },
      ...
    }@arguments:
    {
      prefix = "p.";
      system = "x86_64-linux";
      isLinux = true;
      home = "/home/ada";
    }
    // arguments
    // {
      inherit settings;
      sandbox =
        (lib.evalModules {
          modules = [
            { options = { inherit (options) sandbox; }; }
            { config = { inherit sandbox; }; }
          ];
        }).config.sandbox;
    };
  problems = arguments: findings.problems (given arguments);
  warnings = arguments: findings.warnings (given arguments);
  denying = denyRead: { sandbox = { inherit denyRead; }; };
  keyFile = file: {
    settings.providers.anthropic.keyFile = file;
  };
  confined = sandbox: arguments: arguments // { inherit sandbox; };
  keyFileWarning =
    file: because:
    "`p.settings.providers.anthropic.keyFile` names `${file}`, which ${because}: name the file in `p.sandbox.secrets.ANTHROPIC_API_KEY`, which hands the key to kli alone, or in `p.sandbox.envFiles.ANTHROPIC_API_KEY`, and leave `keyFile` out";
  names = "the names are `agent/spawn`, `extension/spawn-process`, `file/edit`, `file/read`, `file/write`, `image/eval`, `image/inspect`, `process/exec`, `result/read`, `session/control`, `tools/standard`, `mcp/SERVER/TOOL` and `mcp/SERVER/*`";
  shape =
    option:
    "`${option}` must be a string, or a list of strings and of sets with `atom` and one of `under` or `commands`; `[ ]` allows nothing";
in
{
  "nothing is wrong with nothing" = {
    expr = problems { } ++ warnings { } ++ problems { sandbox = { }; } ++ warnings { sandbox = { }; };
    expected = [ ];
  };
  "a key in the place of its file is refused and not shown" = {
    expr = problems {
      sandbox = {
        secrets.ANTHROPIC_API_KEY = "sk-ant-api03-0123456789abcdef";
        envFiles.TOKEN = "0123456789abcdef0123456789abcdef";
      };
    };
    expected = map (
      option:
      "`p.sandbox.${option}` must be the path of a file, and what is written there looks like the key itself: take it out, and replace the key if it is a real one"
    ) [ "secrets.ANTHROPIC_API_KEY" "envFiles.TOKEN" ];
  };
  "a key's file in the store is refused" = {
    expr = problems {
      settings.providers = {
        anthropic.keyFile = ./findings.nix;
        openai.keyFile = "${builtins.storeDir}/key";
        right.keyFile = "/home/ada/key";
      };
      profiles.own.settings.providers.anthropic.keyFile = ./findings.nix;
      sandbox = {
        secrets.A = "${builtins.storeDir}/key";
        secrets.B = "./${builtins.storeDir}/key";
        envFiles.C = "${builtins.storeDir}//key";
      };
    };
    expected =
      let
        literal = "is a path of Nix, and the file would be copied to the store, where every user of the machine can read it: write the path as a string, in quotes";
        stored = file: "names `${builtins.storeDir}${file}`, a file of the store, which every user of the machine can read: keep the key out of the store, and name a file outside";
      in
      [
        "`p.settings.providers.anthropic.keyFile` ${literal}"
        "`p.settings.providers.openai.keyFile` ${stored "/key"}"
        "`p.profiles.own.settings.providers.anthropic.keyFile` ${literal}"
        "`p.sandbox.secrets.A` ${stored "/key"}"
        "`p.sandbox.envFiles.C` ${stored "//key"}"
      ];
  };
  "a package with a configuration of its own leaves no place for another" = {
    expr =
      let
        configured = sandboxSpec: arguments: problems ({ package = { inherit sandboxSpec; bakedConfig = "x"; }; } // arguments);
      in
      configured "x" { }
      ++ configured null { sandbox = { }; }
      ++ configured "x" {
        settings.model = "a/b";
        policy.requireSandbox = true;
        sandbox = { };
      }
      ++ problems {
        package = { };
        settings.model = "a/b";
      };
    expected = [
      "`p.package` is a kli that is configured already, which puts its own configuration in the place of `p.settings`, `p.policy`, `p.sandbox`: name the kli that it was made of, or leave these out"
    ];
  };
  "a context that is the name of a file is doubtful" = {
    expr = lib.concatMap (context: warnings { inherit context; }) [
      "~/AGENTS.md"
      "/ means the root\nof the tree"
      "Be brief."
      "${builtins.storeDir}/AGENTS.md"
      ./findings.nix
    ];
    expected = [
      "`p.context` is the text `~/AGENTS.md`, and the model is told this text and not what a file of this name holds: for a file, write its path without quotes"
    ];
  };
  "a sandbox needs Linux" = {
    expr = problems {
      sandbox = { };
      system = "aarch64-darwin";
      isLinux = false;
    };
    expected = [
      "`p.sandbox` needs Linux (bubblewrap), and this is aarch64-darwin; leave it out there, or set it to null"
    ];
  };

  "every capability that exists is known" = {
    expr = problems {
      settings.capabilities = findings.atoms ++ [
        "mcp/server/tool"
        "mcp/server/*"
        {
          atom = "file/write";
          under = [ "src" ];
        }
      ];
    };
    expected = [ ];
  };
  "a capability that does not exist is named, with its option" = {
    expr = problems {
      settings.capabilities = [ "file/raed" ];
      settings.profiles.own.settings.capabilities = [ { atom = "file/wirte"; } ];
      profiles.other.settings.capabilities = "all";
      policy.capabilities = [ "mcp/*" ];
    };
    expected = [
      "`p.settings.capabilities`: unknown capability `file/raed`; ${names}"
      "`p.settings.profiles.own.settings.capabilities`: unknown capability `file/wirte`; ${names}"
      "`p.profiles.other.settings.capabilities`: unknown capability `all`; ${names}"
      "`p.policy.capabilities`: unknown capability `mcp/*`; ${names}"
    ];
  };
  "capabilities of another shape are refused" = {
    expr =
      lib.concatMap (capabilities: problems { settings = { inherit capabilities; }; })
        [
          null
          true
          { atom = "file/read"; }
          [ 1 ]
          [ { under = [ "src" ]; } ]
          [
            {
              atom = "file/write";
              below = [ "src" ];
            }
          ]
        ];
    expected = lib.genList (_: shape "p.settings.capabilities") 6;
  };
  "a policy has no other keys than a policy has" = {
    expr = problems {
      policy.capabilites = [ "file/read" ];
      policy.denyTools = [ "bash" ];
    };
    expected = [
      "`p.policy.capabilites` is no key of a policy; the keys are `allowedAddresses`, `allowedModels`, `approve`, `budgets`, `capabilities`, `denyTools`, `requireSandbox`, `trustProjects`"
    ];
  };
  "a profile is in one place, and under a name of its own" = {
    expr = problems {
      settings.profiles.own = { };
      profiles.own = { };
      profiles.review = { };
    };
    expected = [
      "the profile `own` is in `p.profiles` and in `p.settings.profiles`: take it out of one of them"
      "`p.profiles.review` has the name of a profile that is built in: take another one"
    ];
  };
  "a theme and an action are in one place, and a theme under a name of its own" = {
    expr = problems {
      settings.themes.own = { };
      settings.keybindings.undo = "ctrl-x";
      themes.own = { };
      themes.dark = { };
      keybindings.undo = "ctrl-q";
      keybindings.redo = [ ];
    };
    expected = [
      "the theme `own` is in `p.themes` and in `p.settings.themes`: take it out of one of them"
      "`p.themes.dark` has the name of a theme that is built in: take another one"
      "the action `undo` is in `p.keybindings` and in `p.settings.keybindings`: take it out of one of them"
    ];
  };
  "a setting that does not exist is a warning" = {
    expr = warnings {
      settings.modle = "a/b";
      settings.model = "a/b";
    };
    expected = [ "`p.settings.modle` is no setting of this kli, which ignores it" ];
  };
  "a policy that wants a sandbox is a warning without one" = {
    expr =
      warnings { policy.requireSandbox = true; }
      ++ warnings {
        policy.requireSandbox = true;
        sandbox = { };
      };
    expected = [
      "`p.policy.requireSandbox` lets kli run only in the sandbox, and `p.sandbox` is null: kli would refuse every run; set `p.sandbox`, `{ }` takes all defaults"
    ];
  };
  "ports without effect are a warning" = {
    expr =
      warnings { sandbox.localPorts = [ 11434 ]; }
      ++ warnings {
        sandbox.localPorts = [ 11434 ];
        sandbox.network = false;
      };
    expected = [
      "`p.sandbox.localPorts` has no effect while `p.sandbox.network` is true: every port of this machine can be reached"
    ];
  };
  "too many ports are refused" = {
    expr = problems { sandbox.localPorts = lib.genList (port: port + 1) 65; };
    expected = [ "`p.sandbox.localPorts` names 65 ports, and at most 64 can be reached" ];
  };

  "what one option sets another may not remove" = {
    expr = problems {
      sandbox = {
        env = {
          A_B = "x";
          BOTH = "x";
        };
        envFiles = {
          BOTH = "/x";
          GONE = "/x";
          KEY = "/x";
          MOVED = "/x";
        };
        denyEnv = [
          "A_*"
          "GONE"
        ];
        secrets.KEY = "/x";
        secretEnv = [ "MOVED" ];
      };
    };
    expected = [
      "`p.sandbox.env` sets `A_B` and `p.sandbox.denyEnv` removes it: take it out of one of them"
      "`p.sandbox.envFiles` sets `GONE` and `p.sandbox.denyEnv` removes it: take it out of one of them"
      "`p.sandbox.envFiles` sets `KEY` for every program inside and `p.sandbox.secrets` keeps it from them: take it out of one of them"
      "`p.sandbox.envFiles` sets `MOVED` for every program inside and `p.sandbox.secretEnv` keeps it from them: take it out of one of them"
      "`p.sandbox.env` and `p.sandbox.envFiles` both set `BOTH`: take it out of one of them"
    ];
  };
  "a key of a provider in a file for all is no contradiction" = {
    expr = problems { sandbox.envFiles.ANTHROPIC_API_KEY = "/run/secrets/anthropic"; };
    expected = [ ];
  };

  "what nothing could start with cannot be hidden" = {
    expr = problems (denying [
      "./"
      "/nix"
      "/nix/store/"
      "$XDG_STATE_HOME/kli"
    ]);
    expected = [
      "`p.sandbox.denyRead` names `./`, the working directory itself, so kli would not start: name what is to be hidden in it"
      "`p.sandbox.denyRead` names `/nix`, which hides kli itself, so it would not start: name what is to be hidden in it"
      "`p.sandbox.denyRead` names `/nix/store/`, which hides kli itself, so it would not start: name what is to be hidden in it"
      "`p.sandbox.denyRead` names `$XDG_STATE_HOME/kli`, which hides the directory of kli's sessions, so kli would not start: set `p.sandbox.stateDir` to false, or name less"
    ];
  };
  "what does not hide it can be" = {
    expr =
      problems (denying [
        "./x"
        "/nix/var"
        "/nix/storehouse"
        "$XDG_STATE_HOME/kli/x"
        "$XDG_STATE_HOME/klip"
        "/etc"
      ])
      ++ problems {
        sandbox = {
          denyRead = [ "$XDG_STATE_HOME/" ];
          stateDir = false;
        };
      };
    expected = [ ];
  };
  "the directory of the data is not hidden" = {
    expr =
      problems (
        denying [
          "~/data"
          "~/data/kli/x"
        ]
        // {
          dataDir = "/home/ada/data/kli";
        }
      )
      ++ problems (denying [ "$XDG_STATE_HOME/" ] // { dataDir = "~/data"; });
    expected = [
      "`p.sandbox.denyRead` names `~/data`, which hides the directory of kli's sessions, so kli would not start: set `p.sandbox.stateDir` to false, or name less"
    ];
  };
  "the machine's policy is not hidden" = {
    expr = problems (denying [ "/etc/kli" ] // { machinePolicy = true; });
    expected = [
      "`p.sandbox.denyRead` names `/etc/kli`, which hides the policy of this machine, so kli would end with an error: name less"
    ];
  };
  "what kli reads itself can be hidden, with a warning" = {
    expr = warnings (denying [
      "~/.config"
      "/home/ada/.config/kli"
      "$XDG_STATE_HOME/x"
      "~/.local"
      "./.kli"
      "~/.config/klip"
      "./.kli/x"
    ]);
    expected = [
      "`p.sandbox.denyRead` names `~/.config`, which hides your own settings of kli and the keys that it stores from kli itself; declare them here, and use `p.sandbox.secrets`"
      "`p.sandbox.denyRead` names `/home/ada/.config/kli`, which hides your own settings of kli and the keys that it stores from kli itself; declare them here, and use `p.sandbox.secrets`"
      "`p.sandbox.denyRead` names `~/.local`, where kli keeps its sessions unless XDG_STATE_HOME says otherwise; then it does not start: set `p.sandbox.stateDir` to false, or name less"
      "`p.sandbox.denyRead` names `./.kli`, which hides the settings of a project; they can only narrow what kli may do, and hidden they narrow nothing"
    ];
  };

  "a key's file in a tree that the sandbox replaces is a warning" = {
    expr = lib.concatMap (file: warnings (confined { } (keyFile file))) [
      "/run/secrets/anthropic"
      "/tmp/key"
      "/var/run/key"
      "/dev/shm/key"
      "/home/ada/.config/sops-nix/secrets/anthropic"
    ];
    expected = map (file: keyFileWarning file "is not there inside the sandbox") [
      "/run/secrets/anthropic"
      "/tmp/key"
      "/var/run/key"
      "/dev/shm/key"
      "/home/ada/.config/sops-nix/secrets/anthropic"
    ];
  };
  "so is one that is hidden" = {
    expr =
      warnings (confined { denyRead = [ "~/keys" ]; } (keyFile "/home/ada/keys/anthropic"))
      ++ warnings (confined { secrets.OTHER = "~/key"; } (keyFile "~/key"));
    expected = [
      (keyFileWarning "/home/ada/keys/anthropic" "the sandbox hides")
      (keyFileWarning "~/key" "the sandbox hides")
    ];
  };
  "one that can be read, or is not needed, is none" = {
    expr = lib.concatMap warnings [
      (keyFile "/run/secrets/anthropic")
      (confined { } (keyFile "~/key"))
      (confined { } (keyFile "/runner/key"))
      (confined { } (keyFile "/run/current-system/sw/key"))
      (confined { readOnlyPaths = [ "/run/secrets" ]; } (keyFile "/run/secrets/anthropic"))
      (confined { secrets.ANTHROPIC_API_KEY = "/run/x"; } (keyFile "/run/secrets/anthropic"))
      (confined { envFiles.ANTHROPIC_API_KEY = "/run/x"; } (keyFile "/run/secrets/anthropic"))
      (confined { } (keyFile "/tmp/ada/key") // { home = "/tmp/ada"; })
      (confined { denyRead = [ "~/keys" ]; } (keyFile "~/keyring"))
    ];
    expected = [ ];
  };
  "a provider of one's own is named, in a profile as well" = {
    expr = warnings {
      sandbox = { };
      settings.providers.work = {
        keyEnv = "WORK_KEY";
        keyFile = "/run/work";
      };
      profiles.other.settings.providers.home.keyFile = "/run/home";
    };
    expected = [
      "`p.settings.providers.work.keyFile` names `/run/work`, which is not there inside the sandbox: name the file in `p.sandbox.secrets.WORK_KEY`, which hands the key to kli alone, or in `p.sandbox.envFiles.WORK_KEY`, and leave `keyFile` out"
      "`p.profiles.other.settings.providers.home.keyFile` names `/run/home`, which is not there inside the sandbox: give the provider a `keyEnv`, and name the file in `p.sandbox.secrets` under it, and leave `keyFile` out"
    ];
  };
}
