//! Keeps the certificate and the webhook configurations as they have to be; with a certificate of files, the latter.
//!
//! Invariant: replicas need no leader. The Secret is only written against the version that was read, so that of several who
//! take the same step one does, and the others read what it wrote; the configurations are the same from all of them. Only
//! what was read from the Secret is shown, never what was about to be written. One task, started by the server.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{BoxStream, SelectAll, StreamExt as _};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{DynamicObject, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client, ResourceExt as _};
use pumice_api::names::ADMISSION_CONFIGURATION;
use pumice_auth::ServingCertificate;
use pumice_clock::now;
use pumice_cluster::{Change, Failure, WatchScope, failure, watch, words};
use pumice_units::with_causes;

use super::Source;
use super::certificate::{Certificates, Pair, Rotation, Step};
use super::configuration::{Registration, kind};
use super::files::{CertificateFiles, Texts};
use crate::routes::{Phase, Route};

/// Who owns the fields of the configurations.
const FIELD_MANAGER: &str = "pumice-admission";
/// Pause after a call that failed, and before what somebody else has changed is changed back.
const PAUSE: Duration = Duration::from_secs(2);
/// The task looks again at the latest after that, whatever the clock does meanwhile.
const LOOK_EVERY: Duration = Duration::from_secs(3600);
/// How often files are looked at.
const FILES_EVERY: Duration = Duration::from_secs(2);

/// What is kept, and how.
pub(crate) struct Reconciler {
    pub client: Client,
    pub certificate: Source,
    /// What a certificate of our own has to be good for.
    pub names: BTreeSet<String>,
    pub registration: Registration,
    pub routes: Vec<&'static Route>,
    pub serving: Arc<ServingCertificate>,
}

enum Event {
    Secret(Box<Change<Secret>>),
    /// A version of a configuration; none when it is gone.
    Registered(Phase, Option<String>),
}

/// What earlier rounds found and wrote.
#[derive(Default)]
struct Known {
    /// The Secret, once it was looked for.
    secret: Option<Option<Secret>>,
    /// What the files said that are shown.
    texts: Option<Texts>,
    /// What the configurations say by our own writes, and since when.
    announced: Option<(Registration, Timestamp)>,
    /// The versions that we have written.
    versions: [Option<String>; 2],
    /// A configuration is not what we have written.
    is_changed: bool,
}

impl Reconciler {
    /// Works until it is dropped; ends only when a watch does.
    pub async fn run(mut self) {
        let mut events = self.events();
        let mut known = Known::default();
        let mut wait = LOOK_EVERY;
        loop {
            tokio::select! {
                event = events.next() => match event {
                    None => return,
                    Some(event) => known.take(event),
                },
                () = tokio::time::sleep(wait) => {}
            }
            wait = match self.keep(&mut known).await {
                Ok(wait) => wait.min(LOOK_EVERY),
                Err(problem) => {
                    tracing::warn!(problem, "the certificate and the webhook configurations wait");
                    PAUSE
                }
            };
        }
    }

    fn events(&self) -> SelectAll<BoxStream<'static, Event>> {
        let mut events = SelectAll::new();
        if let Source::Secret { namespace, name, .. } = &self.certificate {
            let secrets: Api<Secret> = Api::namespaced(self.client.clone(), namespace);
            events.push(watch(secrets, named(name)).map(|change| Event::Secret(Box::new(change))).boxed());
        }
        events.push(registered(&self.client, Phase::Mutate));
        events.push(registered(&self.client, Phase::Validate));
        events
    }

    /// Brings everything one step further; says when to look again, or what went wrong.
    async fn keep(&mut self, known: &mut Known) -> Result<Duration, String> {
        match self.certificate.clone() {
            Source::Secret { namespace, name, rotation } => {
                let store = SecretStore { secrets: Api::namespaced(self.client.clone(), &namespace), name };
                self.keep_secret(known, &store, rotation).await
            }
            Source::Files(files) => self.keep_files(known, files).await,
        }
    }

    /// Shows what the files say and makes it trusted.
    async fn keep_files(&mut self, known: &mut Known, files: CertificateFiles) -> Result<Duration, String> {
        let reading = files.clone();
        let read = tokio::task::spawn_blocking(move || reading.read()).await;
        let texts = read.map_err(|error| error.to_string())?.map_err(|error| with_causes(&error))?;
        if known.texts.as_ref() != Some(&texts) {
            files.show(&texts, &self.serving).map_err(|error| with_causes(&error))?;
            if known.texts.is_some() {
                tracing::info!(certificate = %files.certificate.display(), "another certificate is shown");
            }
            self.registration.trusted.clone_from(&texts.trusted);
            known.texts = Some(texts);
        }
        self.announce(known).await?;
        Ok(FILES_EVERY)
    }

    async fn keep_secret(
        &mut self,
        known: &mut Known,
        store: &SecretStore,
        rotation: Rotation,
    ) -> Result<Duration, String> {
        let Some(secret) = known.secret.clone() else { return Ok(LOOK_EVERY) };
        let Some(held) = secret.as_ref().and_then(Certificates::from_secret) else {
            let pair = Pair::make(&self.names, now()).map_err(|error| error.to_string())?;
            let first = Certificates::new(pair, self.names.clone(), now());
            tracing::info!(secret = store.name, "a first certificate is made");
            return store.write(known, secret, &first).await;
        };
        self.serving.show(&held.serving.certificate, &held.serving.key).map_err(|error| error.to_string())?;
        self.registration.trusted = held.trusted();
        let announced = self.announce(known).await?;
        let step = held.step(&self.names, rotation, announced, now());
        let make = || Pair::make(&self.names.union(&held.names).cloned().collect(), now());
        let changed = match step {
            Step::Wait(until) => return Ok(Duration::try_from(now().duration_until(until)).unwrap_or_default()),
            Step::Announce => return Ok(PAUSE),
            Step::Make { at_once: true } => {
                held.replaced(make().map_err(|error| error.to_string())?, &self.names, now())
            }
            Step::Make { at_once: false } => held.with_next(make().map_err(|error| error.to_string())?, now()),
            Step::Show => held.with_next_shown(now()),
            Step::Forget => held.without_former(now()),
        };
        tracing::info!(?step, "the certificate changes");
        store.write(known, secret, &changed).await
    }

    /// Makes the configurations say what they have to, and says since when they do; nothing if that has to wait.
    async fn announce(&self, known: &mut Known) -> Result<Option<Timestamp>, String> {
        if let Some((said, since)) = &known.announced
            && *said == self.registration
            && !known.is_changed
        {
            return Ok(Some(*since));
        }
        known.announced = None;
        if std::mem::take(&mut known.is_changed) {
            // Not at once: another replica may know more than we do yet, and a quarrel with somebody should be slow.
            tracing::debug!("somebody else has written a webhook configuration");
            return Ok(None);
        }
        for phase in [Phase::Mutate, Phase::Validate] {
            let applied = self.apply(phase).await;
            let refused = |error| format!("the {} can't be written: {}", kind(phase), words(&error));
            known.versions[phase as usize] = applied.map_err(refused)?;
        }
        let since = now();
        known.announced = Some((self.registration.clone(), since));
        Ok(Some(since))
    }

    /// Makes a configuration what it has to be, if it is not; gives the version that is there then.
    async fn apply(&self, phase: Phase) -> Result<Option<String>, kube::Error> {
        let api = configurations(&self.client, phase);
        let mut object = self.registration.object(phase, &self.routes);
        if let Some(found) = api.get_opt(ADMISSION_CONFIGURATION).await? {
            if found.data["webhooks"] == object.data["webhooks"] {
                return Ok(found.resource_version());
            }
            object.metadata = found.metadata;
            return Ok(api.replace(ADMISSION_CONFIGURATION, &parameters(), &object).await?.resource_version());
        }
        Ok(api.create(&parameters(), &object).await?.resource_version())
    }
}

/// Where the Secret is that holds the certificates.
struct SecretStore {
    secrets: Api<Secret>,
    name: String,
}

impl SecretStore {
    /// Writes the Secret against the version that was read; whoever comes too late reads what is there.
    async fn write(&self, known: &mut Known, found: Option<Secret>, wanted: &Certificates) -> Result<Duration, String> {
        let written = match found {
            Some(mut secret) => {
                wanted.write(&mut secret);
                self.secrets.replace(&self.name, &parameters(), &secret).await
            }
            None => {
                let mut secret = Secret::default();
                secret.metadata.name = Some(self.name.clone());
                wanted.write(&mut secret);
                self.secrets.create(&parameters(), &secret).await
            }
        };
        let there = match written {
            Ok(secret) => Some(secret),
            Err(error) if matches!(failure(&error), Failure::Conflict | Failure::AlreadyExists | Failure::NotFound) => {
                self.secrets.get_opt(&self.name).await.map_err(|error| words(&error))?
            }
            Err(error) => return Err(format!("the Secret {} can't be written: {}", self.name, words(&error))),
        };
        known.secret = Some(there);
        Ok(Duration::ZERO)
    }
}

impl Known {
    fn take(&mut self, event: Event) {
        match event {
            Event::Secret(change) => {
                self.secret = Some(match *change {
                    Change::Replace(found) => found.into_iter().next(),
                    Change::Applied(secret) => Some(secret),
                    Change::Deleted(_) => None,
                });
            }
            Event::Registered(phase, version) => {
                let ours = &self.versions[phase as usize];
                // Before the first write of ours nothing is known to be changed.
                self.is_changed |= ours.is_some() && *ours != version;
            }
        }
    }
}

fn named(name: &str) -> WatchScope {
    WatchScope::fields(format!("metadata.name={name}"))
}

fn parameters() -> PostParams {
    PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() }
}

fn configurations(client: &Client, phase: Phase) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("admissionregistration.k8s.io", "v1", kind(phase));
    Api::all_with(client.clone(), &ApiResource::from_gvk(&kind))
}

fn registered(client: &Client, phase: Phase) -> BoxStream<'static, Event> {
    watch(configurations(client, phase), named(ADMISSION_CONFIGURATION))
        .map(move |change| match change {
            Change::Replace(found) => Event::Registered(phase, found.first().and_then(DynamicObject::resource_version)),
            Change::Applied(object) => Event::Registered(phase, object.resource_version()),
            Change::Deleted(_) => Event::Registered(phase, None),
        })
        .boxed()
}
