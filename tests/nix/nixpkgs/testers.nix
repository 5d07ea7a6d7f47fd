# testers.runNixOSTest: every machine is evaluated, with the options of a test's machine that kli's
# test uses, and the script is compiled. Nothing boots: the result holds the script and the machines.
{
  lib,
  pkgs,
  system,
  nixosSystem,
}:
let
  inherit (lib) mkOption types;
  flag = mkOption {
    type = types.bool;
    default = false;
  };
  machine.options = {
    virtualisation = {
      memorySize = mkOption { type = types.ints.positive; };
      cores = mkOption { type = types.ints.positive; };
      docker.enable = flag;
      docker.enableOnBoot = flag;
    };
    users.users = mkOption {
      type = types.attrsOf (types.submodule { options.isNormalUser = flag; });
      default = { };
    };
  };
in
{
  runNixOSTest =
    {
      name,
      nodes,
      testScript,
    }:
    let
      machines = lib.mapAttrs (
        _name: node:
        (nixosSystem {
          inherit system;
          modules = [
            machine
            node
          ];
        }).config.system.build.toplevel
      ) nodes;
    in
    pkgs.runCommand "vm-test-run-${name}"
      {
        inherit testScript;
        passAsFile = [ "testScript" ];
        nodes = lib.attrValues machines;
      }
      ''
        mkdir "$out"
        cp "$testScriptPath" "$out/script.py"
        PYTHONDONTWRITEBYTECODE=1 python3 -c 'import sys; compile(open(sys.argv[1]).read(), sys.argv[1], "exec")' "$out/script.py"
        i=0
        for node in $nodes; do i=$((i + 1)); ln -s "$node" "$out/node-$i"; done
      '';
}
