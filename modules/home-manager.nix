# `programs.kli` for home-manager.
{ kliFor }:
{
  _file = "kli#homeModules.default";
  key = "kli#homeModules.default";
  imports = [
    (import ./core.nix {
      inherit kliFor;
      install = packages: { home = { inherit packages; }; };
      home = config: config.home.homeDirectory;
    })
  ];
}
