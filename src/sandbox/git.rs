//! Where the git directory of the workspace is, found by reading alone: no git program is run (law 9).
