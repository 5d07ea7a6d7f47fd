# The packages of one system, as home-manager imports them anew.
{ system, ... }:
import ./packages.nix {
  inherit system;
  lib = import ./lib;
  host = builtins.fromJSON (builtins.readFile ./host.json);
}
