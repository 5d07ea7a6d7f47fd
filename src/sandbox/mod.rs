//! The sandbox: a specification in, a confined process out.
