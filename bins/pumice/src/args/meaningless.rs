//! Flags that are taken and not used, because a deployment's command line has them.

/// Declares them, each with why.
macro_rules! meaningless {
    ($($name:ident, $flag:literal, $why:literal;)+) => {
        /// Volcano's flags that have no meaning here.
        #[derive(Debug, Default, clap::Args)]
        pub struct MeaninglessArgs {
            $(
                #[arg(long = $flag, hide = true, num_args = 0..=1, default_missing_value = "")]
                $name: Vec<String>,
            )+
        }

        impl MeaninglessArgs {
            /// Those that were given, and why they have no effect.
            pub(super) fn given(&self) -> Vec<(&'static str, &'static str)> {
                let all = [$((!self.$name.is_empty(), $flag, $why),)+];
                all.into_iter().filter(|(given, ..)| *given).map(|(_, flag, why)| (flag, why)).collect()
            }

            /// Says so.
            pub(super) fn warn(&self) {
                for (flag, why) in self.given() {
                    crate::output::note(format_args!("pumice: --{flag} has no effect: {why}"));
                }
            }
        }
    };
}

pub(super) use meaningless;
