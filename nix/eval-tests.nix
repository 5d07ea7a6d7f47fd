# Evaluation tests: a table of `{ expr; expected; }`, for what needs no build and no package. Here:
# the specification, the values of its options, and the guard against secrets.
{ lib }:
let
  spec = import ./spec.nix { inherit lib; };
  options = import ../modules/options.nix { inherit lib; };

  evaluate =
    sandbox:
    (lib.evalModules {
      modules = [
        {
          options = { inherit (options) sandbox; };
          config = { inherit sandbox; };
        }
      ];
    }).config.sandbox;

  # A value of its own for every key.
  every = {
    network = false;
    nestedUserns = true;
    writablePaths = [
      "@cargo"
      "~/.cache/kli"
    ];
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

  # The launcher's own list, out of its source.
  launcherKeys =
    let
      behind = lib.last (builtins.split "pub const KEYS: [^\n]*\n" (builtins.readFile ../src/sandbox/spec.rs));
      list = lib.head (builtins.split "]" behind);
    in
    lib.concatMap (part: if builtins.isList part then part else [ ]) (builtins.split "\"([A-Za-z]+)\"" list);

  # One table for both sides: scripts/stages/nix puts it to the launcher.
  values = lib.importJSON ../tests/nix/values.json;
  wrong =
    key: row:
    let
      accepted = value: holds (evaluate { ${key} = value; });
    in
    map (value: { ${key} = value; }) (
      lib.filter (value: !accepted value) row.good ++ lib.filter accepted row.bad
    );

  # Whether a value can be computed, with everything in it.
  holds = value: (builtins.tryEval (builtins.deepSeq value true)).success;
  secret = name: value: map (found: found.option) (spec.secretsIn "settings" "" { ${name} = value; });
in
{
  "the defaults are rendered in full" = {
    expr = spec.json (evaluate { });
    expected = ''{"allowAbstractSockets":false,"allowHomeWorkspace":false,"allowNixDaemon":false,"allowSockets":[],"allowUserNamespaces":false,"denyEnv":[],"denyRead":[],"denyReadGlobs":[],"env":{},"envFiles":{},"git":"commit","limits":null,"localPorts":[],"nestedUserns":false,"network":true,"passEnv":null,"protect":[".envrc",".kli/settings.json",".kli/extensions"],"readOnlyPaths":[],"secretEnv":["ANTHROPIC_API_KEY","OPENAI_API_KEY"],"secrets":{},"stateDir":true,"tmp":"private","version":1,"writablePaths":[]}'';
  };
  "the options are the keys of the specification" = {
    expr = lib.attrNames (evaluate { });
    expected = lib.sort (a: b: a < b) spec.keys;
  };
  "the keys are those that the launcher knows" = {
    expr = lib.sort (a: b: a < b) (spec.keys ++ [ "version" ]);
    expected = lib.sort (a: b: a < b) launcherKeys;
  };
  "a value is accepted exactly where the table says so" = {
    expr = lib.concatLists (lib.mapAttrsToList wrong values);
    expected = [ ];
  };
  "the table has every key, with right and wrong values" = {
    expr = lib.attrNames (lib.filterAttrs (_: row: row.good != [ ] && row.bad != [ ]) values);
    expected = lib.sort (a: b: a < b) spec.keys;
  };
  "the documentation of the options is the committed one" = {
    expr = import ./docs.nix { inherit lib; } == builtins.readFile ../docs/options.md;
    expected = true;
  };
  "a variable that is set is kept from nobody, unless it is said" = {
    expr =
      (evaluate {
        env.OPENAI_API_KEY = "x";
        envFiles.ANTHROPIC_API_KEY = "/run/secrets/anthropic";
      }).secretEnv;
    expected = [ ];
  };
  "null is no sandbox" = {
    expr = evaluate null;
    expected = null;
  };
  "names survive as JSON" = {
    expr =
      (builtins.fromJSON (spec.json (evaluate {
        denyRead = [ "/a b/\"$HOME\"\\\n'`id`" ];
      }))).denyRead;
    expected = [ "/a b/\"$HOME\"\\\n'`id`" ];
  };
  "the order of a list is kept" = {
    expr =
      (spec.render (evaluate {
        writablePaths = [
          "/b"
          "/a"
        ];
      })).writablePaths;
    expected = [
      "/b"
      "/a"
    ];
  };
  "every key survives as it was written" = {
    expr = removeAttrs (spec.render (evaluate every)) [ "version" ];
    expected = every // {
      limits = every.limits // {
        fileSize = null;
      };
    };
  };
  "a limit is a number or a size" = {
    expr = map (fileSize: holds (evaluate { limits = { inherit fileSize; }; })) [
      1
      "4G"
      "4096"
      0
      "4GB"
      "x"
      true
    ];
    expected = [
      true
      true
      true
      false
      false
      false
      false
    ];
  };
  "a misspelt limit is refused" = {
    expr = holds (evaluate { limits.task = 1; });
    expected = false;
  };
  "words outside the choices are refused" = {
    expr = map (sandbox: holds (evaluate sandbox)) [
      { git = "read-only"; }
      { git = "readonly"; }
      { tmp = "host-subdir"; }
      { tmp = "disk"; }
    ];
    expected = [
      true
      false
      true
      false
    ];
  };
  "a port is a number" = {
    expr = map (port: holds (evaluate { localPorts = [ port ]; })) [
      11434
      65536
      (-1)
      "11434"
    ];
    expected = [
      true
      false
      false
      false
    ];
  };
  "what is written replaces the lists that are there by default" = {
    expr = {
      inherit
        (evaluate {
          protect = [ "x" ];
          secretEnv = [ "MY_KEY" ];
        })
        protect
        secretEnv
        ;
    };
    expected = {
      protect = [ "x" ];
      secretEnv = [ "MY_KEY" ];
    };
  };
  "a key in env is refused, the name of a file is not" = {
    expr = map (sandbox: map (found: found.option) (spec.secretsIn "sandbox" "" sandbox)) [
      { env.MY_TOKEN = "0123456789abcdef0123456789abcdef"; }
      { env.RUST_LOG = "info,hyper=debug"; }
      { envFiles.MY_TOKEN = "/run/secrets/my-token-0123456789"; }
      { secrets.ANTHROPIC_API_KEY = "./keys/anthropic-0123456789"; }
      { secrets.ANTHROPIC_API_KEY = "$XDG_RUNTIME_DIR/anthropic-0123456789"; }
      { secrets.ANTHROPIC_API_KEY = "sk-ant-api03-0123456789abcdef"; }
    ];
    expected = [
      [ "sandbox.env.MY_TOKEN" ]
      [ ]
      [ ]
      [ ]
      [ ]
      [ "sandbox.secrets.ANTHROPIC_API_KEY" ]
    ];
  };
  "a state directory is one that the sandbox can make writable" = {
    expr =
      let
        options = import ../modules/options.nix { inherit lib; };
        given =
          dataDir:
          (lib.evalModules {
            modules = [
              { options = { inherit (options) dataDir; }; }
              { config = { inherit dataDir; }; }
            ];
          }).config.dataDir;
      in
      map (dataDir: holds (given dataDir)) [
        "/proc/kli"
        "/sys/kli"
        "/dev/shm"
        "/run"
        "/home/"
        "/"
        "~/"
        "@cargo"
        "/run/kli"
        "~/kli"
      ];
    expected = lib.genList (index: index >= 8) 10;
  };
  "a misspelt key is refused" = {
    expr = holds (evaluate { netwrok = false; });
    expected = false;
  };
  "a path of the repository is refused, it would be copied to the store" = {
    expr = holds (evaluate { denyRead = [ ./spec.nix ]; });
    expected = false;
  };
  "a single string is not a list" = {
    expr = holds (evaluate { denyRead = "/a"; });
    expected = false;
  };
  "the evaluator of these tests accepts what is right" = {
    expr = holds (evaluate {
      network = false;
      denyRead = [ "/a" ];
    });
    expected = true;
  };

  "an Anthropic key is a secret under any name" = {
    expr = secret "note" "see sk-ant-api03-abcdefgh";
    expected = [ "settings.note" ];
  };
  "an AWS key is a secret" = {
    expr = secret "id" "AKIAIOSFODNN7EXAMPLE";
    expected = [ "settings.id" ];
  };
  "a private key is a secret" = {
    expr = secret "pem" "-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n";
    expected = [ "settings.pem" ];
  };
  "a long string under a key's name is a secret" = {
    expr = secret "apiKey" "0123456789abcdef0123456789abcdef";
    expected = [ "settings.apiKey" ];
  };
  "so is one with slashes and plus signs" = {
    expr = secret "SECRET_ACCESS" "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";
    expected = [ "settings.SECRET_ACCESS" ];
  };
  "a secret in a header, deep inside, is named by its place" = {
    expr = secret "providers" {
      own.headers.Authorization = "Bearer 0123456789abcdef0123456789abcdef";
    };
    expected = [ "settings.providers.own.headers.Authorization" ];
  };
  "a secret in a list is named by its index" = {
    expr = secret "args" [
      "--key"
      "ghp_0123456789abcdefghijABCDEFGHIJ012345"
    ];
    expected = [ "settings.args.1" ];
  };
  "a secret as a name is found, and not printed" = {
    expr = secret "env" { "sk-ant-api03-abcdefgh" = "x"; };
    expected = [ "settings.env" ];
  };
  "the name of a variable is no secret" = {
    expr = secret "keyEnv" "ANTHROPIC_API_KEY_NUMBER_2";
    expected = [ ];
  };
  "a file is no secret" = {
    expr = secret "keyFile" "/run/secrets/anthropic-api-key-2";
    expected = [ ];
  };
  "a path under a key's name is no secret" = {
    expr = secret "apiKey" "/run/secrets/anthropic-api-key-2";
    expected = [ ];
  };
  "a reference to a variable is no secret" = {
    expr = secret "x-api-key" "\${ANTHROPIC_API_KEY_NUMBER_2}";
    expected = [ ];
  };
  "a key binding is no secret" = {
    expr = secret "keybindings" { "ctrl-x" = "open-the-external-editor-of-2026"; };
    expected = [ ];
  };
  "a model name is no secret" = {
    expr = secret "model" "anthropic/claude-sonnet-4-5-20250929";
    expected = [ ];
  };
  "a task is no key" = {
    expr = secret "note" "task-ant-colony-simulation";
    expected = [ ];
  };
  "a very long text is looked through" = {
    expr = secret "prompt" (
      lib.concatStrings (lib.genList (_: "ordinary words, ") 4000) + "sk-ant-api03-abcdefgh"
    );
    expected = [ "settings.prompt" ];
  };
}
// import ./eval-tests-findings.nix { inherit lib; }
// import ./eval-tests-modules.nix { inherit lib; }
