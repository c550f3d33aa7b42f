//! Requests against servers of this machine.
