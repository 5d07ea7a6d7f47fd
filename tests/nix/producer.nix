# What scripts/stages/nix-outputs builds and evaluates of mkConfiguredKli: the real kli with all of
# a package's own configuration, and what is refused.
{
  kli,
  pkgs,
  mkConfiguredKli,
  probe,
  hard,
}:
let
  inherit (pkgs) lib;
  stub = arguments: mkConfiguredKli ({ package = probe; } // arguments);
  sandbox = {
    denyRead = [
      "~/.aws"
      "./.env"
    ];
    denyEnv = [ "AWS_*" ];
  };
in
{
  # The real kli. The hard strings go through the instructions, which end up in a file of their own.
  full = mkConfiguredKli {
    settings.model = "replay/recording";
    policy = {
      capabilities = [
        "file/read"
        "process/exec"
      ];
      requireSandbox = true;
    };
    context = lib.concatStringsSep "\n" hard;
    dataDir = "~/data/kli";
    inherit sandbox;
  };
  # The same bytes as a file.
  contextFile = stub { context = ./hard-strings.json; };
  contextPackage = stub { context = pkgs.writeText "AGENTS.md" "from a package\n"; };
  contextStored = stub { context = "${pkgs.writeText "AGENTS.md" "from a package\n"}"; };
  # With a state directory that is nowhere writable in the jail.
  closedState = stub {
    dataDir = "/var/lib/kli";
    sandbox.stateDir = false;
  };

  refused = {
    deniesBaked = stub { sandbox.denyEnv = [ "KLI_*" ]; };
    setsBaked = stub { sandbox.env.KLI_BAKED = "/etc"; };
    readsBaked = stub { sandbox.envFiles.KLI_BAKED = "/etc/hostname"; };
    secretBaked = stub { sandbox.secretEnv = [ "KLI_BAKED" ]; };
    deniesState = stub {
      dataDir = "/data";
      sandbox.denyEnv = [ "KLI_STATE_DIR" ];
    };
    noName = stub { name = "my kli"; };
    noPackages = kli.lib.mkConfiguredKli { package = probe; };
    longContext = stub { context = lib.concatStrings (lib.genList (_: "0123456789abcdef") 4097); };
    secretInContext = stub { context = "the key is sk-ant-api03-0123456789abcdef"; };
    secretInPolicy = stub { policy.allowedAddresses = [ "https://sk-ant-api03-0123456789abcdef@example.org" ]; };
  };
  # What is near to those and right.
  accepted = {
    deniesOthers = stub { sandbox.denyEnv = [ "KLI_TEST" "KLI_B" "KLI_STATE_DIR" ]; };
    longestContext = stub { context = lib.concatStrings (lib.genList (_: "0123456789abcdef") 4096); };
  };

  # Refused at evaluation or by kli itself in the build.
  refusedAtBuild = {
    policyKey = mkConfiguredKli { policy.requireSandbx = true; };
    capability = mkConfiguredKli { settings.capabilities = [ "file/raed" ]; };
    forbiddenModel = mkConfiguredKli {
      settings.model = "anthropic/claude-sonnet-4-5";
      policy.allowedModels = [ "replay/*" ];
    };
    glob = mkConfiguredKli { sandbox.denyReadGlobs = [ "./[a" ]; };
  };
}
