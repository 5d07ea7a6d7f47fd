# The laws of docs/confinement.md in a whole NixOS machine: kli by the NixOS module and by
# home-manager, tried by the script that tests/vm/run also runs in a Debian machine.
#
# `homeManager` is home-manager's NixOS module, for a flake that has that input; without it the
# machine has the NixOS module only. Building `test` needs the system feature `kvm`; `package` is the
# configured kli that `tests/vm/run PACKAGE` puts into a Debian machine.
{
  pkgs,
  kli,
  homeManager ? null,
}:
let
  inherit (pkgs) lib;
  kliFor = _pkgs: kli;

  configuration = {
    sandbox = lib.importJSON ../tests/vm/sandbox.json;
    settings = lib.importJSON ../tests/vm/baked.json;
  };
  module.programs.kli = configuration // {
    enable = true;
  };

  # What the recipe for docker runs in: a shell, the usual commands, git, and kli's own libraries.
  image = pkgs.dockerTools.buildLayeredImage {
    name = "kli-test";
    tag = "latest";
    contents = [
      kli.kli
      pkgs.bashInteractive
      pkgs.coreutils
      pkgs.git
      pkgs.gnugrep
    ];
    extraCommands = "mkdir -p etc usr tmp home";
    config.Env = [ "PATH=/bin" ];
  };

  machine =
    { config, ... }:
    {
      imports = [
        (import ../modules/nixos.nix { inherit kliFor; })
        module
      ]
      ++ lib.optional (homeManager != null) homeManager;

      config = {
        virtualisation = {
          memorySize = 2048;
          cores = 2;
          docker = {
            enable = true;
            enableOnBoot = false;
          };
        };
        users.users = lib.genAttrs [ "tester" "other" ] (_name: {
          isNormalUser = true;
        });
        environment.systemPackages = [
          pkgs.bubblewrap
          pkgs.git
          pkgs.perl
          pkgs.procps
        ];
        environment.etc = {
          "kli-vm/inside.sh".source = ../tests/vm/inside.sh;
          "kli-vm/look.jsonl".source = ../tests/vm/look.jsonl;
          "kli-vm/recording.jsonl".source = ../tests/vm/recording.jsonl;
          "kli-vm/baked.json".source = ../tests/vm/baked.json;
          "kli-vm/machine.json".source = pkgs.writeText "machine.json" (
            builtins.toJSON {
              entrypoints = {
                nixos = "/run/current-system/sw/bin/kli";
              }
              // lib.optionalAttrs (homeManager != null) {
                home-manager = "/etc/profiles/per-user/tester/bin/kli";
              };
              launcher = "${kli.kli-sandbox}/bin/kli-sandbox";
              spec = "${config.programs.kli.finalPackage.sandboxSpec}";
              plain = "${kli.kli}/bin/kli";
              all = true;
              container = "docker load --quiet --input ${image}; docker tag kli-test localhost/kli-test";
            }
          );
        };
      }
      // lib.optionalAttrs (homeManager != null) {
        home-manager = {
          useUserPackages = true;
          users.tester = {
            imports = [
              (import ../modules/home-manager.nix { inherit kliFor; })
              module
            ];
            config.home.stateVersion = "26.05";
          };
        };
      };
    };
in
{
  package = kli.mkConfiguredKli configuration;

  test = pkgs.testers.runNixOSTest {
    name = "kli-confinement";
    nodes = { inherit machine; };
    testScript = builtins.readFile ../tests/vm/confinement.py;
  };
}
