# `programs.kli` for NixOS, for all users of the machine.
{ kliFor }:
{
  _file = "kli#nixosModules.default";
  key = "kli#nixosModules.default";
  imports = [
    (import ./core.nix {
      inherit kliFor;
      install = systemPackages: { environment = { inherit systemPackages; }; };
    })
  ];
}
