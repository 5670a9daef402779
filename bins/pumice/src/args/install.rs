//! Flags of what is printed for a cluster.

use clap::{Args, ValueEnum};
use pumice_api::names::NAMESPACE_SYSTEM;
use pumice_auth::Component;

/// `pumice roles`.
#[derive(Debug, Args)]
pub struct RolesArgs {
    /// Components that get rights [default: scheduler, controllers and admission]
    #[arg(value_enum, value_name = "COMPONENT")]
    pub components: Vec<ComponentArg>,
    /// Namespace of the components, which is printed too
    #[arg(long, value_name = "NAME", default_value = NAMESPACE_SYSTEM)]
    pub namespace: String,
    /// Give the rights to users, for components that show certificates, in place of service accounts
    #[arg(long)]
    pub users: bool,
}

/// A component.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ComponentArg {
    /// The scheduler
    Scheduler,
    /// The controllers
    Controllers,
    /// Admission
    Admission,
    /// The history
    History,
    /// The fleet's executor
    Executor,
    /// Simulated nodes
    Nodes,
}

impl ComponentArg {
    /// The component that a word of the command line stands for.
    pub fn component(self) -> Component {
        match self {
            Self::Scheduler => Component::Scheduler,
            Self::Controllers => Component::Controllers,
            Self::Admission => Component::Admission,
            Self::History => Component::History,
            Self::Executor => Component::Executor,
            Self::Nodes => Component::Nodes,
        }
    }
}
