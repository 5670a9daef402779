//! `configurations: - name: autoscaling`: whether something adds nodes where pods wait that no present node fits.

use super::{Argument, Config};

pub(crate) const NAME: &str = "autoscaling";
const ENABLE: &str = "enable";
const AUTO: &str = "auto";

/// Where nodes come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Autoscaling {
    /// The nodes that there are, and whoever joins by himself.
    Off,
    /// More are added for pods that wait.
    On,
    /// More are added if a node says so, or an autoscaler was seen.
    IfSeen,
}

/// Whether the value of an argument means something, and what it must be.
pub(crate) fn judge(name: &str, value: &Argument) -> Option<(bool, &'static str)> {
    let is_good = matches!(value, Argument::Bool(_)) || matches!(value, Argument::Text(text) if text == AUTO);
    (name == ENABLE).then_some((is_good, "true, false or auto"))
}

impl Config {
    /// Says whether nodes are added, where the file says nothing of it.
    pub fn set_autoscaling(&mut self, adds_nodes: bool) {
        let arguments = self.configurations.entry(NAME.to_owned()).or_default();
        arguments.entry(ENABLE.to_owned()).or_insert(Argument::Bool(adds_nodes));
    }

    /// Where nodes come from. By what is seen where nothing is said of it.
    pub(crate) fn autoscaling(&self) -> Autoscaling {
        match self.configurations.get(NAME).and_then(|arguments| arguments.get(ENABLE)) {
            Some(Argument::Bool(true)) => Autoscaling::On,
            Some(Argument::Bool(false)) => Autoscaling::Off,
            _ => Autoscaling::IfSeen,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_on_off_or_by_what_is_seen() {
        let of = |value: Argument| {
            let arguments = [(ENABLE.to_owned(), value)].into();
            Config { configurations: [(NAME.to_owned(), arguments)].into(), ..Config::default() }.autoscaling()
        };
        assert_eq!(Config::default().autoscaling(), Autoscaling::IfSeen);
        assert_eq!(of(Argument::Bool(true)), Autoscaling::On);
        assert_eq!(of(Argument::Bool(false)), Autoscaling::Off);
        assert_eq!(of(Argument::Text("auto".to_owned())), Autoscaling::IfSeen);
        assert_eq!(judge(ENABLE, &Argument::Text("maybe".to_owned())), Some((false, "true, false or auto")));
    }
}
