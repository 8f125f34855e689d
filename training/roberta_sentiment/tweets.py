"""Set-up step: gets VADER's rated tweets from the source distribution of vaderSentiment.

Third parties wrote the tweets, so their text is fetched, and never part of this repository.
C.J. Hutto and E.E. Gilbert, VADER, ICWSM 2014.
"""

import argparse
import hashlib
import io
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from training.command import InputError, Parser, run
from training.files import sha256_of, write_bytes

PACKAGE = "vaderSentiment==3.3.2"
PACKAGE_SHA256 = "5d7c06e027fc8b99238edb0d53d970cf97066ef97654009890b83703849632f9"
ARCHIVE = "vaderSentiment-3.3.2/additional_resources/hutto_ICWSM_2014.tar.gz"
MEMBER = "hutto_ICWSM_2014/tweets_GroundTruth.txt"
TWEETS_SHA256 = "dfbe7102e2f92579ed8b19df9a3822491880697c67adf712fb66e520cc05102f"


def fetch(output: Path) -> bool:
    """Put the tweets at `output`; False where the right file was there already.

    Raises:
        InputError: pip cannot get the package, it is another one, or `output` is not writable.
    """
    if output.is_file() and sha256_of(output) == TWEETS_SHA256:
        return False
    tweets = _extract(_download())
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(output, tweets)
    except OSError as error:
        raise InputError(f"cannot write {output}: {error.strerror}") from error
    return True


def _download() -> bytes:
    """The source distribution, by pip, which knows this machine's index and proxies."""
    with tempfile.TemporaryDirectory() as folder:
        # fmt: off
        command = [
            sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check",
            "--no-binary", ":all:", "--no-deps", "--dest", folder, PACKAGE,
        ]
        # fmt: on
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        found = sorted(Path(folder).glob("*.tar.gz"))
        if done.returncode or not found:
            errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
            raise InputError(f"pip cannot download {PACKAGE}: {(errors or ['no reason'])[-1]}")
        return found[0].read_bytes()


def _extract(package: bytes) -> bytes:
    """The file of tweets inside the archive inside the source distribution."""
    if (got := hashlib.sha256(package).hexdigest()) != PACKAGE_SHA256:
        raise InputError(f"{PACKAGE} has sha256 {got}, expected {PACKAGE_SHA256}; check the index")
    content = package
    for name in (ARCHIVE, MEMBER):
        with tarfile.open(fileobj=io.BytesIO(content), mode="r:gz") as archive:
            member = archive.extractfile(name)
            if member is None:
                raise InputError(f"{PACKAGE} holds no file {name}")
            content = member.read()
    return content


def main(arguments: list[str] | None = None) -> int:
    """The command `python -m training.roberta_sentiment.tweets`."""
    parser = Parser(prog="python -m training.roberta_sentiment.tweets", description=__doc__)
    parser.add_argument("--output", type=Path, required=True, help="the file to write")
    options: argparse.Namespace = parser.parse_args(arguments)

    def action() -> None:
        fetched = fetch(options.output)
        print(f"{options.output}: {'4200 rated tweets' if fetched else 'already there'}")

    return run(action)


if __name__ == "__main__":
    sys.exit(main())
