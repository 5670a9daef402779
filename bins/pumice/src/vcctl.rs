//! Volcano's command line: from flags to the verbs of `pumice-vcctl`.
//!
//! Invariant: data goes to standard output, what went wrong to standard error, in Volcano's words (`Failed to list job: …`);
//! a failure never ends with exit code 0.

use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use pumice_api::bus::Action;
use pumice_clock::now;
use pumice_jobs::Connection;
use pumice_jobs::platform::target::{Target, TargetError, read_run_file};
use pumice_vcctl::documents::{self, Deed, ManifestFile};
use pumice_vcctl::kinds::{CRON_JOB, JOB_FLOW, JOB_TEMPLATE, NODE_WHY, QUEUE_WHY};
use pumice_vcctl::objects::{self, Listing};
use pumice_vcctl::queue::Operation;
use pumice_vcctl::table::Column;
use pumice_vcctl::{Error, Form, Kind, NamespacedName, Scope, Session, cron, job, pod, queue, reservation, version};

use crate::args::reserve::{DrainArgs, ReserveArgs, Verb as ReserveVerb};
use crate::args::vcctl::flow::{DeleteArgs, Verb as FlowVerb};
use crate::args::vcctl::job::Verb as JobVerb;
use crate::args::vcctl::queue::{self as queue_args, Verb as QueueVerb};
use crate::args::vcctl::slurm::{JobsArgs, OneArgs, Program, QueuesArgs, SubArgs};
use crate::args::vcctl::work::{CronVerb, PodVerb};
use crate::args::vcctl::{ApiFlags, FromFile, Group, Listed, NameAndOutput, Named, NamedAndOutput};
use crate::data_dir::DataDir;
use crate::output;

/// Does what a group's verb says.
pub fn run(group: Group) -> ExitCode {
    match group {
        Group::Job { api, verb } => talk(&api, job_words(&verb), async |session| on_jobs(session, verb).await),
        Group::Queue { api, verb } => talk(&api, queue_words(&verb), async |session| on_queues(session, verb).await),
        Group::Pod { api, verb } => talk(&api, pod_words(&verb), async |session| on_pods(session, verb).await),
        Group::JobFlow { api, verb } => {
            let words = format!("{} jobflow", flow_word(&verb));
            talk(&api, &words, async |session| on_flows(session, JOB_FLOW, pumice_vcctl::flow::FLOWS, verb).await)
        }
        Group::JobTemplate { api, verb } => {
            let words = format!("{} jobtemplate", flow_word(&verb));
            talk(&api, &words, async |session| {
                on_flows(session, JOB_TEMPLATE, pumice_vcctl::flow::TEMPLATES, verb).await
            })
        }
        Group::CronJob { api, verb } => talk(&api, cron_words(&verb), async |session| on_crons(session, verb).await),
        Group::Version { output } => {
            let printed = version::text(env!("CARGO_PKG_VERSION"), output.or_table())
                .and_then(|text| std::io::stdout().write_all(text.as_bytes()).map_err(Error::Output));
            ended("print version", printed)
        }
    }
}

/// Does what a program of Volcano's does.
pub fn called(program: Program) -> ExitCode {
    match program {
        Program::Vcctl { group } => run(group),
        Program::Vsub(args) => vsub(args),
        Program::Vjobs(args) => vjobs(args),
        Program::Vqueues(args) => vqueues(&args),
        Program::Vcancel(args) => {
            one(&args, "cancel job", async |session, job, form| job::delete(session, job, "cancel", form).await)
        }
        Program::Vsuspend(args) => {
            one(&args, "suspend job", async |session, job, form| job::ask(session, job, Action::AbortJob, form).await)
        }
        Program::Vresume(args) => {
            one(&args, "resume job", async |session, job, form| job::ask(session, job, Action::ResumeJob, form).await)
        }
    }
}

/// `pumice links`: the names Volcano's users know.
pub fn links(directory: Option<&Path>) -> anyhow::Result<()> {
    let program = std::env::current_exe().context("find this program's own file")?;
    let beside = || program.parent().map(Path::to_owned);
    let directory = directory.map(Path::to_owned).or_else(beside).context("say where with --dir")?;
    let made = pumice_vcctl::links::make(&directory, &program).map_err(|error| anyhow::anyhow!(error.sentence()))?;
    for path in made {
        output::line(path.display())?;
    }
    Ok(())
}

/// `pumice node why`.
pub fn node_why(api: &ApiFlags, args: &NameAndOutput) -> ExitCode {
    talk(api, "tell of node", async |session| objects::why(session, NODE_WHY, &args.name, args.output.or_table()).await)
}

/// `pumice reserve`, and its verbs.
pub fn reserve(args: &ReserveArgs) -> ExitCode {
    match &args.verb {
        None => talk(&args.api, "reserve nodes", async |session| {
            reservation::make(session, &args.make.wanted(), args.make.output.form()).await
        }),
        Some(ReserveVerb::List { output }) => {
            talk(&args.api, "list reservations", async |session| reservation::list(session, output.or_table()).await)
        }
        Some(ReserveVerb::Show(named)) => talk(&args.api, "show reservation", async |session| {
            reservation::show(session, &named.name, named.output.or_table()).await
        }),
        Some(ReserveVerb::Delete(named)) => talk(&args.api, "delete reservation", async |session| {
            reservation::delete(session, &named.name, named.output.form()).await
        }),
    }
}

/// `pumice node drain`.
pub fn drain(args: &DrainArgs) -> ExitCode {
    talk(&args.api, "drain node", async |session| reservation::make(session, &args.wanted(), args.output.form()).await)
}

/// `pumice node undrain`.
pub fn undrain(api: &ApiFlags, args: &NameAndOutput) -> ExitCode {
    talk(api, "undrain node", async |session| reservation::undrain(session, &args.name, args.output.form()).await)
}

fn vsub(args: SubArgs) -> ExitCode {
    let SubArgs { api, name, namespace, image, scheduler, size, output } = args;
    let said = |given: Option<String>, variable: &str, otherwise: &str| {
        let variable = || std::env::var_os(variable)?.into_string().ok().filter(|value| !value.is_empty());
        given.filter(|given| !given.is_empty()).or_else(variable).unwrap_or_else(|| otherwise.to_owned())
    };
    let image = said(image, "VOLCANO_DEFAULT_IMAGE", "busybox");
    let scheduler = said(scheduler, "VOLCANO_SCHEDULER_NAME", "volcano");
    let namespace = said(namespace, "VOLCANO_DEFAULT_JOB_NAMESPACE", "default");
    let job = size.job(name, image, scheduler);
    talk(&api, "run job", async |session| job::run_new(session, &job, &namespace, output.form()).await)
}

fn vjobs(args: JobsArgs) -> ExitCode {
    let JobsArgs { api, job, all_namespaces, filter, output } = args;
    if !job.name.is_empty() {
        return talk(&api, "view job", async |session| {
            let job = NamespacedName { namespace: &job.namespace, name: &job.name };
            job::view(session, job, output.form()).await
        });
    }
    let scope = if all_namespaces { Scope::All } else { Scope::Namespace(job.namespace) };
    let filter = filter.filter(String::new());
    talk(&api, "list job", async |session| job::list(session, &scope, &filter, output.or_table()).await)
}

fn vqueues(args: &QueuesArgs) -> ExitCode {
    let form = args.output.or_table();
    talk(&args.api, "get queue", async |session| match args.name.as_str() {
        "" => queue::list(session, queue::SHORT, form).await,
        name => queue::get(session, name, queue::SHORT, form).await,
    })
}

fn one(
    args: &OneArgs,
    words: &str,
    act: impl AsyncFnOnce(&mut Session<'_>, NamespacedName<'_>, Option<Form>) -> Result<(), Error>,
) -> ExitCode {
    talk(&args.api, words, async |session| {
        let name = named(&args.job.name, "job name", words)?;
        act(session, NamespacedName { namespace: &args.job.namespace, name }, args.output.form()).await
    })
}

fn job_words(verb: &JobVerb) -> &'static str {
    match verb {
        JobVerb::Run(_) => "run job",
        JobVerb::List(_) => "list job",
        JobVerb::View(_) => "view job",
        JobVerb::Suspend(_) => "suspend job",
        JobVerb::Resume(_) => "resume job",
        JobVerb::Delete(_) => "delete job",
    }
}

async fn on_jobs(session: &mut Session<'_>, verb: JobVerb) -> Result<(), Error> {
    let words = job_words(&verb);
    match verb {
        JobVerb::Run(args) => match &args.filename {
            Some(file) => {
                let file = ManifestFile { path: file, stdin: &mut std::io::stdin() };
                job::run_file(session, file, args.namespace.as_deref(), args.output.form()).await
            }
            None => {
                let namespace = args.namespace.as_deref().unwrap_or("default");
                let job = args.size.job(args.name, args.image, args.scheduler);
                job::run_new(session, &job, namespace, args.output.form()).await
            }
        },
        JobVerb::List(args) => {
            let filter = args.filter.filter(args.queue);
            job::list(session, &args.namespaces.scope(), &filter, args.output.or_table()).await
        }
        JobVerb::View(args) => job::view(session, place_of(&args.named, "job name", words)?, args.output.form()).await,
        JobVerb::Suspend(NamedAndOutput { named, output }) => {
            job::ask(session, place_of(&named, "job name", words)?, Action::AbortJob, output.form()).await
        }
        JobVerb::Resume(NamedAndOutput { named, output }) => {
            job::ask(session, place_of(&named, "job name", words)?, Action::ResumeJob, output.form()).await
        }
        JobVerb::Delete(NamedAndOutput { named, output }) => {
            job::delete(session, place_of(&named, "job name", words)?, "delete", output.form()).await
        }
    }
}

fn queue_words(verb: &QueueVerb) -> &'static str {
    match verb {
        QueueVerb::Create(_) => "create queue",
        QueueVerb::List { .. } => "list queue",
        QueueVerb::Get(_) => "get queue",
        QueueVerb::Operate(_) => "operate queue",
        QueueVerb::Why(_) => "tell of queue",
        QueueVerb::Delete(_) => "delete queue",
    }
}

async fn on_queues(session: &mut Session<'_>, verb: QueueVerb) -> Result<(), Error> {
    let words = queue_words(&verb);
    match verb {
        QueueVerb::Create(args) => {
            let open = args.state == queue_args::State::Open;
            let name = named(&args.name, "queue name", words)?;
            queue::create(session, name, args.weight, open, args.output.form()).await
        }
        QueueVerb::List { output } => queue::list(session, queue::COLUMNS, output.or_table()).await,
        QueueVerb::Get(args) => {
            let name = named(&args.queue.name, "queue name", words)?;
            queue::get(session, name, queue::COLUMNS, args.output.or_table()).await
        }
        QueueVerb::Why(args) => objects::why(session, QUEUE_WHY, &args.name, args.output.or_table()).await,
        QueueVerb::Operate(args) => {
            let name = named(&args.queue.name, "queue name", words)?;
            let operation = match args.action {
                queue_args::Action::Open => Operation::Open,
                queue_args::Action::Close => Operation::Close,
                queue_args::Action::Update if args.weight > 0 => Operation::Update(args.weight),
                queue_args::Action::Update => {
                    return Err(Error::usage(format!("when update queue {name}, --weight must be greater than 0")));
                }
            };
            queue::operate(session, name, operation, args.output.form()).await
        }
        QueueVerb::Delete(args) => {
            let name = named(&args.queue.name, "queue name", words)?;
            queue::delete(session, name, args.output.form()).await
        }
    }
}

fn pod_words(verb: &PodVerb) -> &'static str {
    match verb {
        PodVerb::List(_) => "list pod",
        PodVerb::Get(_) => "get pod",
        PodVerb::Delete(_) => "delete pod",
    }
}

async fn on_pods(session: &mut Session<'_>, verb: PodVerb) -> Result<(), Error> {
    let words = pod_words(&verb);
    match verb {
        PodVerb::List(args) => {
            let filter = pod::Filter { job: args.job, queue: args.queue };
            pod::list(session, &args.namespaces.scope(), &filter, args.output.or_table()).await
        }
        PodVerb::Get(args) => {
            pod::get(session, place_of(&args.named, "pod name", words)?, args.output.or_table()).await
        }
        PodVerb::Delete(NamedAndOutput { named, output }) => {
            pod::delete(session, place_of(&named, "pod name", words)?, output.form()).await
        }
    }
}

fn flow_word(verb: &FlowVerb) -> &'static str {
    match verb {
        FlowVerb::Create(_) => "create",
        FlowVerb::List(_) => "list",
        FlowVerb::Get(_) => "get",
        FlowVerb::Describe(_) => "describe",
        FlowVerb::Delete(_) => "delete",
    }
}

async fn on_flows(session: &mut Session<'_>, kind: Kind, columns: &[Column], verb: FlowVerb) -> Result<(), Error> {
    match verb {
        FlowVerb::Create(args) => create(session, kind, &args).await,
        FlowVerb::List(args) => list(session, kind, columns, &args).await,
        FlowVerb::Get(args) => get(session, kind, columns, &args).await,
        FlowVerb::Describe(NamedAndOutput { named, output }) => {
            let name = Some(named.name.as_str()).filter(|name| !name.is_empty());
            let form = output.form().unwrap_or(Form::Yaml);
            objects::describe(session, kind, columns, &named.namespace.namespace, name, form).await
        }
        FlowVerb::Delete(args) => delete(session, kind, &args).await,
    }
}

fn cron_words(verb: &CronVerb) -> &'static str {
    match verb {
        CronVerb::Create(_) => "create cronjob",
        CronVerb::List(_) => "list cronjob",
        CronVerb::Get(_) => "get cronjob",
        CronVerb::Suspend(_) => "suspend cronjob",
        CronVerb::Resume(_) => "resume cronjob",
        CronVerb::Delete(_) => "delete cronjob",
    }
}

async fn on_crons(session: &mut Session<'_>, verb: CronVerb) -> Result<(), Error> {
    let words = cron_words(&verb);
    match verb {
        CronVerb::Create(args) => create(session, CRON_JOB, &args).await,
        CronVerb::List(args) => list(session, CRON_JOB, cron::COLUMNS, &args).await,
        CronVerb::Get(args) => get(session, CRON_JOB, cron::COLUMNS, &args).await,
        CronVerb::Suspend(NamedAndOutput { named, output }) => {
            cron::suspend(session, place_of(&named, "cronjob name", words)?, true, output.form()).await
        }
        CronVerb::Resume(NamedAndOutput { named, output }) => {
            cron::suspend(session, place_of(&named, "cronjob name", words)?, false, output.form()).await
        }
        CronVerb::Delete(args) => delete(session, CRON_JOB, &args).await,
    }
}

async fn create(session: &mut Session<'_>, kind: Kind, args: &FromFile) -> Result<(), Error> {
    let file = ManifestFile { path: &args.file, stdin: &mut std::io::stdin() };
    documents::each(session, kind, file, &args.namespace.namespace, Deed::Create, args.output.form()).await
}

async fn list(session: &mut Session<'_>, kind: Kind, columns: &[Column], args: &Listed) -> Result<(), Error> {
    let scope = args.namespaces.scope();
    objects::list(session, Listing { kind, columns, scope: &scope, keep: &|_| true }, args.output.or_table()).await
}

async fn get(session: &mut Session<'_>, kind: Kind, columns: &[Column], args: &NamedAndOutput) -> Result<(), Error> {
    let it = place_of(&args.named, "name", &format!("get {}", kind.word))?;
    objects::get(session, kind, columns, it, args.output.or_table()).await
}

async fn delete(session: &mut Session<'_>, kind: Kind, args: &DeleteArgs) -> Result<(), Error> {
    let namespace = &args.named.namespace.namespace;
    let form = args.output.form();
    match &args.file {
        Some(file) => {
            let file = ManifestFile { path: file, stdin: &mut std::io::stdin() };
            documents::each(session, kind, file, namespace, Deed::Delete, form).await
        }
        None => {
            let it = place_of(&args.named, "name", &format!("delete {}", kind.word))?;
            documents::delete(session, kind, it, form).await
        }
    }
}

/// Namespace and name of an object that has to be named.
fn place_of<'n>(it: &'n Named, what: &str, words: &str) -> Result<NamespacedName<'n>, Error> {
    Ok(NamespacedName { namespace: &it.namespace.namespace, name: named(&it.name, what, words)? })
}

/// A name that has to be said; `words` is what it is said for, such as `view job`.
fn named<'n>(name: &'n str, what: &str, words: &str) -> Result<&'n str, Error> {
    if !name.is_empty() {
        return Ok(name);
    }
    let words = words.replacen(' ', " a particular ", 1);
    Err(Error::usage(format!("{what} (specified by --name) is mandatory to {words}")))
}

/// Connects, does `verb`, and says how it ended; `words` are what it is told as where it failed. Nothing is sent before the verb begins.
pub fn talk(api: &ApiFlags, words: &str, verb: impl AsyncFnOnce(&mut Session<'_>) -> Result<(), Error>) -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            output::note(format_args!("Failed to {words}: the runtime can't be started: {error}"));
            return ExitCode::FAILURE;
        }
    };
    let mut out = BufWriter::new(std::io::stdout().lock());
    let result = runtime.block_on(async {
        let target = target(api.kubeconfig.as_deref())?;
        let connection = Connection::open_like_kubernetes(target, api.master.as_deref()).await?.of_program("vcctl");
        let mut notes = std::io::stderr();
        let mut session = Session { connection, now: now(), out: &mut out, notes: &mut notes };
        verb(&mut session).await
    });
    // What was printed before a failure comes before it.
    let flushed = out.flush().map_err(Error::Output);
    ended(words, result.and(flushed))
}

fn ended(words: &str, result: Result<(), Error>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.is_closed_pipe() => ExitCode::SUCCESS,
        Err(error) => {
            output::note(format_args!("Failed to {words}: {}", error.sentence()));
            ExitCode::from(error.code())
        }
    }
}

/// A kubeconfig that was named; else, unless `$KUBECONFIG` names one, the platform that runs on this machine. `None` leaves it
/// to what Kubernetes' clients look at.
fn target(kubeconfig: Option<&Path>) -> Result<Option<Target>, TargetError> {
    if let Some(path) = kubeconfig {
        return Ok(Some(Target::Kubeconfig { path: path.to_owned(), context: None }));
    }
    if std::env::var_os("KUBECONFIG").is_some_and(|value| !value.is_empty()) {
        return Ok(None);
    }
    let Ok(data) = DataDir::choose(None) else { return Ok(None) };
    let data_dir: PathBuf = data.path().to_owned();
    let running = read_run_file(&data_dir)?;
    Ok(running.map(|_| Target::Local { data_dir, context: None, by_default: true }))
}
