# What `nix flake check` builds: the binaries, the strict checks of the sources, the evaluation
# tests, and a configured kli of each kind.
{ pkgs, kli }:
let
  inherit (pkgs) lib;

  tests = import ./eval-tests.nix { inherit lib; };
  failed = lib.filterAttrs (_name: test: test.expr != test.expected) tests;
  report = lib.concatStrings (
    lib.mapAttrsToList (name: test: ''
      ${name}: expected ${builtins.toJSON test.expected}
        and got ${builtins.toJSON test.expr}
    '') failed
  );
in
kli.checks
// {
  inherit (kli) kli kli-sandbox;

  eval =
    if failed == { } then
      pkgs.writeText "kli-eval-tests" (lib.concatMapStringsSep "\n" (name: "ok ${name}") (lib.attrNames tests))
    else
      throw "evaluation tests failed:\n${report}";

  # The page in the tree is what the declarations say now.
  options-doc =
    pkgs.runCommand "kli-options-doc-current"
      {
        made = pkgs.writeText "options.md" (import ./docs.nix { inherit lib; });
      }
      ''
        cmp ${../docs/options.md} "$made"
        touch "$out"
      '';

  # Needs the system feature `kvm`.
  vm = (import ./vm-tests.nix { inherit pkgs kli; }).test;

  configured = kli.mkConfiguredKli {
    settings.model = "replay/demo";
    sandbox = {
      denyRead = [ "~/.ssh" ];
      denyEnv = [ "AWS_*" ];
      passEnv = [ "EDITOR" ];
      secrets.ANTHROPIC_API_KEY = "/run/secrets/anthropic";
      writablePaths = [ "@cargo" ];
      localPorts = [ 11434 ];
      tmp = "host-subdir";
      limits = {
        tasks = 512;
        memory = "8G";
      };
    };
  };
}
