//! A script and the flags in its first lines: `#PUMICE --flag value` as they are, `#SBATCH` lines translated.
//!
//! Invariant: what a line asks for is either a flag that comes out, with the line's number, or a warning that names it;
//! nothing is dropped in silence. As with Slurm only lines before the first command count. Pure; called by `jobctl`.

mod sbatch;

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
    /// All of it.
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
        /// The file.
        name: String,
        /// Its size.
        bytes: usize,
        /// What it was to travel in.
        carrier: Carrier,
    },
    /// Bytes that are no text.
    #[error("{name} is not UTF-8 text (byte {byte}): a program goes after `--`")]
    Encoding {
        /// The file.
        name: String,
        /// Offset of the first wrong byte.
        byte: usize,
    },
    /// No interpreter.
    #[error("{name} does not begin with #! and its interpreter, such as #!/bin/sh")]
    NoInterpreter {
        /// The file.
        name: String,
    },
    /// A line that can't be read.
    #[error("{name}:{line}: {problem}")]
    Line {
        /// The file.
        name: String,
        /// From 1.
        line: usize,
        /// What is wrong.
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
    /// What is not done, each with its line.
    pub warnings: Vec<String>,
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
        let first = text.lines().next().unwrap_or_default();
        let interpreter = first.strip_prefix("#!").map(interpreter).filter(|words| !words.is_empty());
        let interpreter = interpreter.ok_or_else(|| ScriptError::NoInterpreter { name: name() })?;
        Ok(Script { file_name: file_name(path), text: text.to_owned(), interpreter, tag, carrier })
    }

    /// The flags in its first lines.
    pub fn header(&self) -> Result<Header, ScriptError> {
        let mut header = Header::default();
        let mut slurm = sbatch::Translator::default();
        let mut commands_began = false;
        for (number, line) in self.text.lines().enumerate().map(|(index, line)| (index + 1, line.trim())) {
            commands_began |= !line.is_empty() && !line.starts_with('#');
            let Some((kind, rest)) = directive(line) else { continue };
            if commands_began {
                header.warnings.push(format!("line {number}: {kind} after the first command is not read"));
                continue;
            }
            let words = words(rest).map_err(|problem| ScriptError::Line {
                name: self.file_name.clone(),
                line: number,
                problem,
            })?;
            match kind {
                "#PUMICE" => header.lines.push(Line { number, words }),
                _ => slurm.line(number, &words, &mut header),
            }
        }
        slurm.finish(&mut header);
        Ok(header)
    }
}

fn directive(line: &str) -> Option<(&'static str, &str)> {
    ["#PUMICE", "#SBATCH"].into_iter().find_map(|kind| {
        let rest = line.strip_prefix(kind)?;
        rest.is_empty().then_some((kind, rest)).or_else(|| rest.starts_with([' ', '\t']).then_some((kind, rest)))
    })
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

/// Splits a line into words as a shell does: quotes and backslashes, nothing else.
fn words(line: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote: Option<char> = None;
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        match (quote, character) {
            (Some(open), close) if open == close => quote = None,
            (None, '\'' | '"') => {
                quote = Some(character);
                word.get_or_insert_default();
            }
            (None | Some('"'), '\\') => {
                let escaped = characters.next().ok_or("a backslash at the end of the line")?;
                word.get_or_insert_default().push(escaped);
            }
            (None, space) if space.is_whitespace() => words.extend(word.take()),
            _ => word.get_or_insert_default().push(character),
        }
    }
    if let Some(quote) = quote {
        return Err(format!("a {quote} that is never closed"));
    }
    words.extend(word);
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(text: &str) -> String {
        let script = match Script::read("dir/train it.sh", text.as_bytes(), "t".to_owned(), Carrier::ConfigMap) {
            Ok(script) => script,
            Err(error) => return format!("error: {error}\n"),
        };
        match script.header() {
            Ok(header) => {
                let lines = header.lines.iter().map(|line| format!("{}: {}\n", line.number, line.words.join(" | ")));
                lines.chain(header.warnings.iter().map(|warning| format!("warning: {warning}\n"))).collect()
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
            "#!/bin/sh\n#SBATCH --mail-type END --mail-user=a@b\n#SBATCH --exclusive\n#SBATCH -N 2\n#SBATCH --nodes=1\n#SBATCH -n1\n#SBATCH --signal=B:TERM@120 --requeue\n#SBATCH words\n",
            "#!/bin/sh\n#SBATCH --time=90\n#SBATCH --time=10:30\n#SBATCH --time=UNLIMITED\n#SBATCH --time=soon\n#SBATCH --time=2-\n#SBATCH --mem=0\n#SBATCH --mem=lots\n#SBATCH -c many\n#SBATCH -c\n#SBATCH --gres=license:1\n#SBATCH -d singleton\n#SBATCH -p a,b\n",
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

    proptest::proptest! {
        #[test]
        fn no_text_breaks_it(text in "(#PUMICE|#SBATCH|[ \\n'\"\\\\a-z=:%0-9-])*") {
            let _ = told(&format!("#!/bin/sh\n{text}"));
        }

        #[test]
        fn quoted_words_come_back(given in proptest::collection::vec("[^'\\n]{0,10}", 0..5)) {
            let line: String = given.iter().map(|word| format!(" '{word}'")).collect();
            proptest::prop_assert_eq!(words(&line), Ok(given));
        }
    }
}
