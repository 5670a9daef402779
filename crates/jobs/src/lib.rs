//! What jobctl and the Python library share.
