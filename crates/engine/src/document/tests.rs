//! Each mistake, with its place and its words.
