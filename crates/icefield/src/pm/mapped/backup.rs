//! Copying a directory.
