{
  description = "kli: a coding agent for the terminal that can be confined as a whole process";

  inputs = {
    nixpkgs.url = "github:NixOS/nixpkgs/nixpkgs-unstable";
    crane.url = "github:ipetkov/crane";
  };

  outputs =
    {
      self,
      nixpkgs,
      crane,
    }:
    let
      inherit (nixpkgs) lib;

      linux = [
        "x86_64-linux"
        "aarch64-linux"
      ];
      # kli itself; `sandbox` is refused there, because bubblewrap needs Linux.
      systems = linux ++ [ "aarch64-darwin" ];

      # Everything is made from a set of packages that the caller names, so that a consumer gets
      # binaries of its own nixpkgs and not a second one.
      kliFor =
        pkgs:
        import ./nix {
          inherit pkgs;
          mkCraneLib = crane.mkLib;
        };
      pkgsOf = system: nixpkgs.legacyPackages.${system};
      forSystems =
        names: make: lib.genAttrs names (system: make (pkgsOf system) (kliFor (pkgsOf system)));

      mkConfiguredKli =
        args:
        (kliFor (args.pkgs or (throw "kli: `lib.mkConfiguredKli` needs `pkgs`; hand it your package set, or take `lib.SYSTEM.mkConfiguredKli`")))
        .mkConfiguredKli
          (removeAttrs args [ "pkgs" ]);
    in
    {
      packages = forSystems systems (
        pkgs: kli:
        {
          inherit (kli) kli;
          default = kli.kli;
          # Made of the declarations alone, so the same for all.
          options-doc = pkgs.writeTextFile {
            name = "kli-options-doc";
            destination = "/share/doc/kli/options.md";
            text = import ./nix/docs.nix { inherit lib; };
          };
        }
        // lib.optionalAttrs pkgs.stdenv.hostPlatform.isLinux {
          inherit (kli) kli-sandbox kli-static container;
        }
      );

      apps = forSystems systems (
        pkgs: kli:
        {
          default = {
            type = "app";
            program = "${kli.kli}/bin/kli";
            meta.description = "The coding agent, not confined";
          };
        }
        // lib.optionalAttrs pkgs.stdenv.hostPlatform.isLinux {
          demo = {
            type = "app";
            program = "${kli.demo}/bin/kli-demo";
            meta.description = "A whole confined run with a recorded model";
          };
        }
      );

      overlays.default = final: _prev: { inherit (kliFor final) kli kli-sandbox mkConfiguredKli; };

      # `lib.mkConfiguredKli { pkgs = …; … }`, or `lib.<system>.mkConfiguredKli { … }` with this
      # flake's own nixpkgs.
      lib = {
        inherit mkConfiguredKli;
      }
      // lib.genAttrs systems (system: {
        mkConfiguredKli = args: mkConfiguredKli ({ pkgs = pkgsOf system; } // args);
      });

      homeModules.default = import ./modules/home-manager.nix { inherit kliFor; };
      homeManagerModules = self.homeModules;
      nixosModules.default = import ./modules/nixos.nix { inherit kliFor; };

      templates.default = {
        path = ./templates/project;
        description = "A development shell with kli, confined to the project";
        welcomeText = ''
          `nix develop`, then `kli`: what it may touch is declared in `flake.nix`.
          kli sees the project as git does: `git add flake.nix` first.
        '';
      };

      checks = forSystems linux (pkgs: kli: import ./nix/checks.nix { inherit pkgs kli; });

      formatter = forSystems systems (pkgs: _kli: pkgs.nixfmt-tree);

      devShells = forSystems systems (_pkgs: kli: { default = kli.devShell; });
    };
}
