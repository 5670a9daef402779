//! Who is who and who may what.
