//! Law 12: what people do all day works inside.
