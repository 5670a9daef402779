//! Runs pods as processes on this machine.
