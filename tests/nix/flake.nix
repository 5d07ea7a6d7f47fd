# A consumer of kli's flake, as a user would write one, and what the tests build and evaluate from
# it. `host.json` is written by scripts/stages/nix; all inputs are overridden there.
{
  inputs = {
    nixpkgs.url = "path:./nixpkgs";
    crane.url = "path:./crane";
    home-manager = {
      url = "path:./home-manager";
      inputs.nixpkgs.follows = "nixpkgs";
    };
    kli = {
      url = "path:../..";
      inputs = {
        nixpkgs.follows = "nixpkgs";
        crane.follows = "crane";
      };
    };
  };

  outputs =
    {
      self,
      nixpkgs,
      crane,
      home-manager,
      kli,
    }:
    let
      inherit (nixpkgs) lib;
      host = builtins.fromJSON (builtins.readFile ./host.json);
      inherit (host) system home;
      pkgs = nixpkgs.legacyPackages.${system};
      inherit (kli.lib.${system}) mkConfiguredKli;

      # A kli that tells what it can see and do, in the place of the agent.
      probe = pkgs.runCommand "kli-probe" { } ''
        mkdir -p "$out/bin"
        cp ${./probe.sh} "$out/bin/kli"
        chmod +x "$out/bin/kli"
      '';

      # The block that the README shows.
      block =
        { config, ... }:
        {
          programs.kli = {
            enable = true;
            sandbox = {
              network = true;
              writablePaths = [ "${config.home.homeDirectory}/.cache/kli" ];
              denyRead = [ "${config.home.homeDirectory}/.aws" ];
              denyEnv = [ "AWS_SECRET_ACCESS_KEY" ];
            };
          };
        };
      # The same where there is no `config.home`.
      sandbox = {
        network = true;
        writablePaths = [ "${home}/.cache/kli" ];
        denyRead = [ "${home}/.aws" ];
        denyEnv = [ "AWS_SECRET_ACCESS_KEY" ];
      };
      absolute = {
        programs.kli = {
          enable = true;
          inherit sandbox;
        };
      };
      standIn = {
        programs.kli.package = probe;
      };

      homeFor =
        system: modules:
        home-manager.lib.homeManagerConfiguration {
          pkgs = nixpkgs.legacyPackages.${system};
          modules = [
            kli.homeModules.default
            {
              home = {
                username = "ordinary";
                homeDirectory = home;
                stateVersion = "26.05";
              };
            }
          ]
          ++ modules;
        };
      homeWith = homeFor system;
      nixosFor =
        system: modules:
        lib.nixosSystem {
          inherit system;
          modules = [ kli.nixosModules.default ] ++ modules;
        };
      nixosWith = nixosFor system;
      # A package whose program is where the surface puts it, and its specification.
      surfaces = modules: {
        home = rec {
          inherit (homeWith ([ block ] ++ modules)) config activationPackage;
          installed = activationPackage;
          kli = config.programs.kli.finalPackage;
        };
        nixos = rec {
          inherit (nixosWith ([ absolute ] ++ modules)) config;
          installed = config.system.build.toplevel;
          kli = config.programs.kli.finalPackage;
        };
        producer = rec {
          kli = mkConfiguredKli (
            { inherit sandbox; } // lib.optionalAttrs (modules != [ ]) { package = probe; }
          );
          installed = kli;
        };
      };

      hard = builtins.fromJSON (builtins.readFile ./hard-strings.json);
      entrypoint = import "${kli}/nix/entrypoint.nix" { inherit pkgs; };

      # Whether a lock entry says what the input's URL says.
      lock = builtins.fromJSON (builtins.readFile "${kli}/flake.lock");
      urls = lib.mapAttrs (_: input: input.url) (import "${kli}/flake.nix").inputs;
      urlOf =
        { owner, repo, ... }@original:
        "github:${owner}/${repo}${lib.optionalString (original ? ref) "/${original.ref}"}";

      # A home whose `programs.kli` is enabled and has these options.
      homeOf = options: homeWith [ { programs.kli = { enable = true; } // options; } ];
      settingsWith =
        settings:
        (homeOf {
          package = probe;
          inherit settings;
        }).activationPackage;
    in
    {
      probe = surfaces [ standIn ];
      real = surfaces [ ];

      # The test of a whole machine, with home-manager in it, and the package for a Debian one.
      vm = import "${kli}/nix/vm-tests.nix" {
        inherit pkgs;
        kli = import "${kli}/nix" {
          inherit pkgs;
          mkCraneLib = crane.mkLib;
        };
        homeManager = home-manager.nixosModules.home-manager;
      };

      # The same block with the network off, and without a sandbox.
      offline = mkConfiguredKli {
        package = probe;
        sandbox = sandbox // {
          network = false;
        };
      };
      plain = mkConfiguredKli {
        package = probe;
        settings.model = "replay/demo";
        extraPackages = [ self.extra ];
      };
      extra = pkgs.runCommand "extra" { } ''
        mkdir -p "$out/bin"
        printf '#!/bin/sh\necho found\n' > "$out/bin/kli-test-extra"
        chmod +x "$out/bin/kli-test-extra"
      '';

      # Every awkward byte, in words and variables of an entrypoint.
      tortureEntrypoint = entrypoint {
        name = "torture";
        command = "torture";
        words = [ "${probe}/bin/kli" ] ++ hard;
        variables.PROBE_HARD = lib.concatStrings hard;
      };
      missing = entrypoint {
        name = "missing";
        command = "kli";
        words = [ "/nonexistent/kli" ];
      };

      producer = import ./producer.nix {
        inherit
          kli
          pkgs
          mkConfiguredKli
          probe
          hard
          ;
      };
      # The documentation's examples.
      documented = lib.mapAttrs (_: example: example { inherit kli pkgs; }) (import ./documented.nix);

      # Other ways to the same package.
      overlay =
        let
          own = kli.overlays.default pkgs pkgs;
        in
        lib.attrNames own;
      byArgument = kli.lib.mkConfiguredKli {
        inherit pkgs sandbox;
        package = probe;
      };
      alias = kli.homeManagerModules.default.key == kli.homeModules.default.key;
      # The module may come in twice.
      twice =
        (homeWith [
          block
          standIn
          kli.homeManagerModules.default
        ]).activationPackage;
      disabled =
        (homeOf {
          enable = false;
          package = probe;
          sandbox = { };
        }).config.home.packages;
      withoutPackage = (homeOf { package = null; }).config.home.packages;

      lockMatches = {
        names = lib.attrNames lock.nodes.root.inputs == lib.attrNames urls;
        nodes = lib.attrNames lock.nodes == lib.attrNames urls ++ [ "root" ];
        urls = lib.mapAttrs (name: url: urlOf lock.nodes.${name}.original == url) urls;
        hashes = lib.mapAttrs (
          name: _: builtins.match "sha256-[A-Za-z0-9+/]{43}=" lock.nodes.${name}.locked.narHash != null
        ) urls;
        revisions = lib.mapAttrs (
          name: _: builtins.match "[0-9a-f]{40}" lock.nodes.${name}.locked.rev != null
        ) urls;
      };

      # Each must be refused at evaluation; scripts/stages/nix knows the words.
      refused = {
        setFinalPackage =
          (homeWith [
            block
            standIn
            { programs.kli.finalPackage = probe; }
          ]).activationPackage;
        sandboxWithoutPackage =
          (homeWith [
            block
            { programs.kli.package = null; }
          ]).activationPackage;
        sandboxWithoutPackageNixos =
          (nixosWith [
            absolute
            { programs.kli.package = null; }
          ]).config.system.build.toplevel;
        settingsWithoutPackage =
          (homeOf {
            package = null;
            settings.model = "a/b";
          }).activationPackage;
        darwin = kli.lib.aarch64-darwin.mkConfiguredKli {
          package = probe;
          inherit sandbox;
        };
      };
      darwinWithoutSandbox = (kli.lib.aarch64-darwin.mkConfiguredKli { package = probe; }).name;

      # Every `programs.kli` block of the README, as a home that the block alone configures.
      readme = lib.mapAttrs (
        _: module:
        (homeWith [
          module
          standIn
        ]).activationPackage
      ) (import ./readme.nix);

      # Every option on every surface.
      modules = import ./modules.nix {
        inherit
          lib
          kli
          host
          probe
          hard
          homeFor
          nixosFor
          ;
      };

      # What `nix run` starts.
      apps = lib.mapAttrs (
        name: app: pkgs.runCommand "app-${name}" { } ''ln -s ${app.program} "$out"''
      ) kli.apps.${system};

      # Each must be refused by the launcher or kli at build.
      refusedAtBuild = {
        tooLarge = mkConfiguredKli {
          package = probe;
          sandbox.denyRead = lib.genList (
            index: "~/${toString index}/${lib.concatStrings (lib.genList (_: "0123456789abcdef") 32)}"
          ) 2500;
        };
        settings = mkConfiguredKli { settings.model = 5; };
      };
    };
}
