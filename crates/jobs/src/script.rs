//! A script and the flags in its first lines: `#PUMICE --flag value` as they are, `#SBATCH` lines translated.
//!
//! Invariant: what a line asks for is either a flag that comes out, with the line's number, or a warning that names it;
//! nothing is dropped in silence. As with Slurm only lines before the first command count. Pure; called by `jobctl`.

pub mod amounts;
mod options;
mod sbatch;
mod variables;
mod words;

pub use variables::SlurmUse;

use words::{Splitting, words};

/// The most bytes of a script: it travels in an object of Kubernetes.
pub const SCRIPT_BYTES_MAX: usize = 512 << 10;
/// And of one in an annotation: Kubernetes has 256 KiB for all annotations of a pod. In a fleet the first pod has the Job among them,
/// with the script in it once more.
const ANNOTATION_BYTES_MAX: usize = 64 << 10;
/// Longest file name kept.
const FILE_NAME_MAX: usize = 60;

/// What a script travels in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Carrier {
    /// An object of its own, beside the Job.
    ConfigMap,
    /// The Job itself: an annotation of its pods. A fleet has nothing beside its jobs.
    Annotation,
}

impl Carrier {
    fn bytes_max(self) -> usize {
        match self {
            Carrier::ConfigMap => SCRIPT_BYTES_MAX,
            Carrier::Annotation => ANNOTATION_BYTES_MAX,
        }
    }

    /// How much it takes, as the rest of a sentence.
    fn limit(self) -> String {
        let size = self.bytes_max() >> 10;
        match self {
            Carrier::ConfigMap => format!("a script that travels with its job may have {size} KiB"),
            Carrier::Annotation => format!(
                "a script that travels with a job of a fleet may have {size} KiB: put it into the image, or into a folder that \
                 the nodes have, with --volume"
            ),
        }
    }
}

/// A script that travels with its job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Script {
    /// Its file's name, of letters, digits, '-', '_' and '.'.
    pub file_name: String,
    /// Its path as it was given, for messages.
    pub path: String,
    pub text: String,
    /// The words of its first line, without `#!`.
    pub interpreter: Vec<String>,
    /// What tells this submission's copy from others, in names: lower case letters and digits.
    pub tag: String,
    /// What it travels in.
    pub carrier: Carrier,
}

/// A file that can't travel as a script.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScriptError {
    /// Too many bytes.
    #[error("{name} has {bytes} bytes; {}", .carrier.limit())]
    TooLarge {
        name: String,
        bytes: usize,
        /// What it was to travel in.
        carrier: Carrier,
    },
    /// Bytes that are no text.
    #[error("{name} is not UTF-8 text (byte {byte}): a program goes after `--`")]
    Encoding {
        name: String,
        /// Offset of the first wrong byte.
        byte: usize,
    },
    #[error("{name} does not begin with #! and its interpreter, such as #!/bin/sh")]
    NoInterpreter { name: String },
    /// Lines as DOS ends them.
    #[error(
        "{name} has DOS line breaks (\\r\\n), which shells take for a part of each command: `sed -i 's/\\r$//' {name}` removes them"
    )]
    DosLineBreaks { name: String },
    /// A line that can't be read.
    #[error("{name}:{line}: {problem}")]
    Line {
        name: String,
        /// From 1.
        line: usize,
        problem: String,
    },
}

/// The flags of one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// From 1.
    pub number: usize,
    /// The words of flags of `jobctl submit`.
    pub words: Vec<String>,
}

/// What the first lines of a script ask for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Header {
    /// Flags, in the order of their lines.
    pub lines: Vec<Line>,
    /// What is not done, in the order of lines.
    pub warnings: Vec<Warning>,
    /// What `#SBATCH` lines say that is no flag; `None` without such a line.
    pub slurm: Option<SlurmHeader>,
}

/// What is not done of what a line asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    /// From 1.
    pub line: usize,
    /// A sentence.
    pub text: String,
}

/// What `#SBATCH` lines say of a job beside its flags.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlurmHeader {
    /// The name of the job as it is written, which may be none for Kubernetes.
    pub job_name: Option<String>,
    /// Tasks that the script may start in its pod.
    pub tasks: u64,
    /// The partition that is taken for a queue, and its line.
    pub partition: Option<AtLine<String>>,
}

/// Something that a script says, and the line that says it, counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AtLine<T> {
    /// The number of the line. What several lines say together stands at the last of them.
    pub line: usize,
    pub value: T,
}

/// A word of an `#SBATCH` line.
#[derive(Debug, Clone, PartialEq, Eq)]
struct WordAt {
    line: usize,
    text: String,
}

impl Script {
    /// Reads a file's bytes; `path` names it.
    pub fn read(path: &str, bytes: &[u8], tag: String, carrier: Carrier) -> Result<Script, ScriptError> {
        let name = || path.to_owned();
        if bytes.len() > carrier.bytes_max() {
            return Err(ScriptError::TooLarge { name: name(), bytes: bytes.len(), carrier });
        }
        let text = std::str::from_utf8(bytes)
            .map_err(|error| ScriptError::Encoding { name: name(), byte: error.valid_up_to() })?;
        let first = text.split('\n').next().unwrap_or_default();
        if first.ends_with('\r') {
            return Err(ScriptError::DosLineBreaks { name: name() });
        }
        let interpreter = first.strip_prefix("#!").map(interpreter).filter(|words| !words.is_empty());
        let interpreter = interpreter.ok_or_else(|| ScriptError::NoInterpreter { name: name() })?;
        Ok(Script { file_name: file_name(path), path: name(), text: text.to_owned(), interpreter, tag, carrier })
    }

    /// The flags in its first lines. `variable` tells the value of a variable of this process.
    ///
    /// # Errors
    /// A line that can't be read, or that Slurm refuses, too.
    pub fn header(&self, variable: &dyn Fn(&str) -> Option<String>) -> Result<Header, ScriptError> {
        let refused = |line, problem| ScriptError::Line { name: self.path.clone(), line, problem };
        let mut header = Header::default();
        let mut slurm = None;
        let mut only_first_part = false;
        let mut commands_began = false;
        for (number, line) in self.text.lines().enumerate().map(|(index, line)| (index + 1, line)) {
            commands_began |= !line.trim().is_empty() && !line.trim_start().starts_with('#');
            let Some((kind, rest)) = directive(line) else { continue };
            let mut warn =
                |text: &str| header.warnings.push(Warning { line: number, text: format!("{} {text}", kind.word()) });
            match kind {
                _ if commands_began => warn("after the first command is not read"),
                Directive::Pumice => {
                    let words = words(rest, Splitting::Shell).map_err(|problem| refused(number, problem))?;
                    header.lines.push(Line { number, words });
                }
                Directive::Sbatch if line.starts_with([' ', '\t']) => {
                    warn("is not read, as sbatch doesn't read it: it does not begin the line");
                }
                Directive::Sbatch if only_first_part => warn("is not read: it belongs to another part of the job"),
                Directive::Sbatch if begins_a_part(rest) => {
                    only_first_part = true;
                    warn("hetjob is not used: a job has one part here, which is the first");
                }
                Directive::Sbatch => {
                    let words = words(rest, Splitting::Sbatch).map_err(|problem| refused(number, problem))?;
                    let words = words.into_iter().map(|text| WordAt { line: number, text });
                    slurm.get_or_insert_with(Vec::new).extend(words);
                }
            }
        }
        if let Some(words) = slurm {
            let translated = sbatch::translate(&words, variable, &mut header);
            translated.map_err(|sbatch::Refused { line, problem }| refused(line, problem))?;
        }
        header.lines.sort_by_key(|line| line.number);
        header.warnings.sort_by_key(|warning| warning.line);
        Ok(header)
    }
}

/// Whose flags a line has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Directive {
    Pumice,
    Sbatch,
}

impl Directive {
    fn word(self) -> &'static str {
        match self {
            Directive::Pumice => "#PUMICE",
            Directive::Sbatch => "#SBATCH",
        }
    }
}

fn directive(line: &str) -> Option<(Directive, &str)> {
    let line = line.trim();
    // sbatch asks for no space after it.
    if let Some(rest) = line.strip_prefix(Directive::Sbatch.word()) {
        return Some((Directive::Sbatch, rest));
    }
    let rest = line.strip_prefix(Directive::Pumice.word())?;
    (rest.is_empty() || rest.starts_with([' ', '\t'])).then_some((Directive::Pumice, rest))
}

/// Whether a line begins another part of a heterogeneous job of Slurm.
fn begins_a_part(rest: &str) -> bool {
    let first = rest.split_whitespace().next().unwrap_or_default();
    ["hetjob", "packjob"].iter().any(|word| first.eq_ignore_ascii_case(word))
}

/// As the kernel reads it: a program and at most one argument.
fn interpreter(line: &str) -> Vec<String> {
    let line = line.trim();
    let (program, argument) = line.split_once([' ', '\t']).unwrap_or((line, ""));
    [program, argument.trim()].into_iter().filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

/// A name that is a key of a ConfigMap.
fn file_name(path: &str) -> String {
    let name = path.rsplit('/').next().unwrap_or(path);
    let plain = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.') { c } else { '_' };
    let name: String = name.chars().map(plain).take(FILE_NAME_MAX).collect();
    // A key is not all dots.
    if name.bytes().all(|byte| byte == b'.') { "script".to_owned() } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(text: &str) -> String {
        let script = match Script::read("dir/train it.sh", text.as_bytes(), "t".to_owned(), Carrier::ConfigMap) {
            Ok(script) => script,
            Err(error) => return format!("error: {error}\n"),
        };
        let variable = |name: &str| (name == "HERE").then(|| "its value".to_owned());
        match script.header(&variable) {
            Ok(header) => {
                let lines = header.lines.iter().map(|line| format!("{}: {}\n", line.number, line.words.join(" | ")));
                let warnings =
                    header.warnings.iter().map(|Warning { line, text }| format!("warning: {line}: {text}\n"));
                lines.chain(warnings).collect()
            }
            Err(error) => format!("error: {error}\n"),
        }
    }

    #[test]
    fn first_lines_and_what_they_ask_for() {
        let mut table = String::new();
        for text in [
            "#!/bin/sh\n#PUMICE --cpu 2 --memory 4Gi\n\n# a comment\n#PUMICE --env 'A=1 2' --label \"a=b\\\"c\"\necho\n#PUMICE --cpu 4\n",
            "#!/bin/bash -l\n#SBATCH -J My_Job\n#SBATCH --ntasks=4 -c 2\n#SBATCH --mem=4G\n#SBATCH -t 1-12:30:00\n#SBATCH -p gpu\n#SBATCH -a 0-99%10\n",
            "#!/bin/sh\n#SBATCH --mem-per-cpu=500\n#SBATCH --cpus-per-task 4\n#SBATCH --gres=gpu:a100:2\n#SBATCH -d afterok:a:b,afterany:c\n#SBATCH -o out-%j.txt -e err.txt\n",
            "#!/bin/sh\n#SBATCH --mail-type END --mail-user=a@b\n#SBATCH --exclusive\n#SBATCH -N 2\n#SBATCH -n1\n#SBATCH --signal=B:TERM@120 --requeue\n#SBATCH words\n",
            "#!/bin/sh\n#SBATCH --time=90\n#SBATCH --time=10:30\n#SBATCH --time=UNLIMITED\n#SBATCH --time=soon\n#SBATCH --time=2-\n#SBATCH --mem=0\n#SBATCH --mem=lots\n#SBATCH -c many\n#SBATCH --gres=license:1\n#SBATCH -d singleton\n#SBATCH -p a,b\n#SBATCH -p gpu_long\n#SBATCH -c",
            // Options as sbatch reads them: shortened, joined, on the next line, with comments and quotes.
            "#!/bin/sh\n#SBATCH --cpus-per-t=2 # two\n#SBATCH --job-name=\"My job\"#x\n##SBATCH -c 4\n# SBATCH -c 4\n#SBATCH-HQ\n#SBATCH --time\n#SBATCH 30\n#SBATCH --gpu 1 --mpi=pmix\n  #SBATCH -c 8\n#SBATCH -D 'a b'\\ c",
            // The pod gets what the first node was to give.
            "#!/bin/sh\n#SBATCH -N 2\n#SBATCH -n 16\n#SBATCH -G 8\n#SBATCH --mem-per-gpu=10G\n",
            "#!/bin/sh\n#SBATCH --nodes=2-4 --ntasks-per-node=4 -c 3\n#SBATCH --gpus-per-task=1 --mem-per-cpu 1G\n",
            "#!/bin/sh\n#SBATCH -n 80 --tasks-per-node=40\n#SBATCH --gpus-per-node=v100:2 --cpus-per-gpu=6\n",
            "#!/bin/sh\n#SBATCH --gpus=2 --ntasks-per-gpu=2\n#SBATCH --gres=none --mem=100\n",
            "#!/bin/sh\n#SBATCH --gpus=0 --cpus-per-gpu=6 --mem-per-gpu=1G --gpus=x\n",
            // The signal comes before the time that Slurm ends a job at.
            "#!/bin/sh\n#SBATCH --signal=B:USR1@60 -t 10\n",
            "#!/bin/sh\n#SBATCH --signal=SIGTERM -t 1\n#SBATCH --signal=@x\n",
            "#!/bin/sh\n#SBATCH --signal=R:15@99999999\n",
            "#!/bin/sh\n#SBATCH --export=ALL,A=1,HERE,GONE,a.b,NONE\n#SBATCH -d afterok:12345\n#SBATCH --dependency=afterok:My_Job\n",
            "#!/bin/sh\n#SBATCH -c 2\n#SBATCH hetjob\n#SBATCH -c 4\n",
            "#!/bin/sh\n#PUMICE --cpu 8\n#SBATCH -c 2\n#PUMICE --memory 1Gi\n#SBATCH --mem=2G\n",
            // Slurm refuses these, too.
            "#!/bin/sh\n#SBATCH --array=9-0\n",
            "#!/bin/sh\n#SBATCH -J 'a\n",
            "#!/bin/sh\r\n#SBATCH -c 2\r\n",
            "#!/bin/sh\n#PUMICE --env 'A\n",
            "#!/bin/sh\n#PUMICE \\",
            "#!/bin/sh\n#PUMICEX --cpu 2\n#PUMICE\n",
            "echo hi\n",
            "#!\n",
            "",
        ] {
            table.push_str(&format!("{text}-> {}\n", told(text)));
        }
        insta::assert_snapshot!(table);
    }

    #[test]
    fn what_can_not_travel_is_refused() {
        let read_for = |bytes: &[u8], carrier| Script::read("a.sh", bytes, String::new(), carrier);
        let read = |bytes: &[u8]| read_for(bytes, Carrier::ConfigMap).unwrap_err().to_string();
        assert_eq!(
            read(&[b'x'; SCRIPT_BYTES_MAX + 1]),
            "a.sh has 524289 bytes; a script that travels with its job may have 512 KiB"
        );
        let long = format!("#!/bin/sh\n{}", "x".repeat(ANNOTATION_BYTES_MAX));
        assert!(read_for(long.as_bytes(), Carrier::ConfigMap).is_ok());
        assert_eq!(
            read_for(long.as_bytes(), Carrier::Annotation).unwrap_err().to_string(),
            "a.sh has 65546 bytes; a script that travels with a job of a fleet may have 64 KiB: put it into the image, or into a \
             folder that the nodes have, with --volume"
        );
        assert_eq!(read(b"#!/bin/sh\n\xff"), "a.sh is not UTF-8 text (byte 10): a program goes after `--`");
    }

    #[test]
    fn file_names_are_keys() {
        for (path, name) in [("a/b.sh", "b.sh"), ("Größe 1.sh", "Gr__e_1.sh"), ("..", "script"), ("", "script")] {
            assert_eq!(file_name(path), name);
        }
        assert_eq!(interpreter("/usr/bin/env python3 -u "), ["/usr/bin/env", "python3 -u"]);
    }

    #[test]
    fn each_option_of_sbatch_is_taken_or_told() {
        for option in options::OPTIONS {
            let told = told(&format!("#!/bin/sh\n#SBATCH --{}=2 -G 1\n", option.long));
            let by_name = told.contains(option.long) && !told.contains("belongs to");
            let by_flag = told.lines().any(|line| !line.contains("--gpu=1") && line.starts_with("2: "));
            // GPUs are asked for in any case; two nodes are told of by their number.
            let by_number = option.long.starts_with("gpus") || told.contains("2 nodes");
            assert!(by_name || by_flag || by_number, "{}: {told}", option.long);
        }
    }

    proptest::proptest! {
        #[test]
        fn no_text_breaks_it(text in "(#PUMICE|#SBATCH|[ \\n'\"\\\\a-z=:%0-9-])*") {
            let _ = told(&format!("#!/bin/sh\n{text}"));
            let _ = SlurmUse::of(&text).missing(&[], 1);
        }

        #[test]
        fn quoted_words_come_back(given in proptest::collection::vec("[^'\\n]{0,10}", 0..5)) {
            let line: String = given.iter().map(|word| format!(" '{word}'")).collect();
            proptest::prop_assert_eq!(words(&line, Splitting::Shell), Ok(given));
        }
    }
}
