//! Builders, a platform in a temp directory, a kubectl driver.
