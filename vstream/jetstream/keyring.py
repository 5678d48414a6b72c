"""
The keys of a topology: a directory that nobody else can read, and a file for each.

In operator mode

    operator.nk, signer.nk    whom servers trust, and what signs accounts for it
    account-NAME.nk           what an account is known by
    role-NAME.nk              what signs the users of a role, such as `app`
    user-NAME.creds           what a user of that role logs in with

With `routing: regional` each region has roles and users of its own, such as `app-west`.

and with `security: {mode: nkeys}`

    user-NAME.nk              what a user logs in with
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import nkeys
from filelock import FileLock
from platformdirs import user_data_path

from vstream.errors import VstreamError
from vstream.files import write_atomically
from vstream.render import account_view, claims, jwt
from vstream.syntax.document import Json
from vstream.topology import signing
from vstream.topology.model import Security, Topology

_VARIABLE = "VSTREAM_KEYS"
_DIRECTORY_MODE = 0o700
_FILE_MODE = 0o600
_OPERATOR_KEYS = frozenset({signing.OPERATOR, signing.SIGNER})
_SEED_BYTES = 32
_MODE_OF_OTHERS = 0o077


def default_key_directory(topology: str) -> Path:
    """The directory for the keys of *topology* on real servers: in $VSTREAM_KEYS, or in the user's data directory."""
    stated = os.environ.get(_VARIABLE)
    return (Path(stated).expanduser() if stated else user_data_path("vstream") / "keys") / topology


def keys_of(topology: Topology) -> tuple[str, ...]:
    """The names of all keys that *topology* needs."""
    if topology.security is Security.NKEYS:
        return tuple(map(signing.user_key, account_view.index_users(topology)))
    accounts = [account.name for account in account_view.accounts_view(topology)["accounts"]]
    return (
        signing.OPERATOR,
        signing.SIGNER,
        *map(signing.account_key, (signing.SYSTEM_ACCOUNT, *accounts)),
        *map(signing.role_key, account_view.index_users(topology)),
    )


class Keyring:
    """The keys in *directory*. A Signer (`vstream.topology.signing`)."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._pairs: dict[str, nkeys.KeyPair] = {}

    def find_missing(self, topology: Topology) -> tuple[str, ...]:
        """The names of the keys that *topology* needs and that do not exist yet."""
        return tuple(name for name in keys_of(topology) if not self._key_path(name).is_file())

    def ensure_keys(self, topology: Topology) -> tuple[str, ...]:
        """
        Create the keys that *topology* needs and that are missing, and sign credentials that are missing or outdated.

        Returns the names of the new keys; existing ones stay as they are. Raises VstreamError if the directory cannot
        be written.
        """
        with self._locked_directory():
            new = self.find_missing(topology)
            for name in new:
                self._create_key(name)
            users = account_view.index_users(topology) if topology.security is Security.OPERATOR else {}
            for user, account in users.items():
                if not self._is_current(user):
                    write_atomically(
                        self.credentials_path(user), self._sign_credentials(user, account), mode=_FILE_MODE
                    )
        return new

    def rotate(self, topology: Topology, user: str) -> None:
        """
        Create a new key for *user*. The old one becomes invalid once servers have loaded the new accounts.

        In operator mode the role's key is replaced, with new credentials. Raises VstreamError if the directory cannot
        be written.
        """
        with self._locked_directory():
            if topology.security is Security.NKEYS:
                self._create_key(signing.user_key(user))
                return
            self._create_key(signing.role_key(user))
            fresh = self._sign_credentials(user, account_view.index_users(topology)[user])
            write_atomically(self.credentials_path(user), fresh, mode=_FILE_MODE)

    def credentials_path(self, user: str) -> Path:
        """The credentials file of role *user* in operator mode. It may not exist."""
        return self.directory / f"user-{user}.creds"

    def seed_path(self, user: str) -> Path:
        """The seed file that *user* logs in with where servers know its public key. It may not exist."""
        return self._key_path(signing.user_key(user))

    def certificate_paths(self, user: str) -> tuple[Path, Path]:
        """The client certificate of *user* and its key. The files may not exist."""
        certificate, key = signing.certificate_files(user)
        return self.directory / certificate, self.directory / key

    def copy_certificates(self, topology: Topology, directory: Path) -> None:
        """
        Copy the certificates that a lab of *topology* needs from *directory*.

        Raises VstreamError if a certificate is missing or the keyring cannot be written.
        """
        files = [signing.CA_FILE, signing.SERVER_CERTIFICATE, signing.SERVER_KEY]
        files += [name for user in account_view.index_users(topology) for name in signing.certificate_files(user)]
        if missing := [name for name in files if not (directory / name).is_file()]:
            raise VstreamError(
                f"a lab of topology `{topology.name}` needs certificates that are not in {directory}: {', '.join(missing)}",
                hint=f"put them there, in PEM, valid for 127.0.0.1; ${_VARIABLE} names another directory",
            )
        with self._locked_directory():
            for name in files:
                write_atomically(self.directory / name, (directory / name).read_text(encoding="utf-8"), mode=_FILE_MODE)

    def public_key(self, name: str) -> str:
        """See Signer."""
        return str(self._key_pair(name).public_key.decode())

    def sign(self, claims: Mapping[str, Json], name: str) -> str:
        """See Signer."""
        return jwt.encode(claims, self.public_key(name), self._key_pair(name).sign)

    def _create_key(self, name: str) -> None:
        kind = nkeys.PREFIX_BYTE_OPERATOR if name in _OPERATOR_KEYS else nkeys.PREFIX_BYTE_ACCOUNT
        kind = nkeys.PREFIX_BYTE_USER if name.startswith(signing.user_key("")) else kind
        seed = nkeys.encode_seed(os.urandom(_SEED_BYTES), kind)
        write_atomically(self._key_path(name), seed.decode() + "\n", mode=_FILE_MODE)
        self._pairs.pop(name, None)

    def _key_path(self, name: str) -> Path:
        return self.directory / f"{name}.nk"

    def _key_pair(self, name: str) -> nkeys.KeyPair:
        if name not in self._pairs:
            path = self._key_path(name)
            try:
                if path.stat().st_mode & _MODE_OF_OTHERS:
                    raise VstreamError(f"others can read the key {path}", hint=f"`chmod 600 {path}`")
                self._pairs[name] = nkeys.from_seed(bytearray(path.read_bytes().strip()))
            except FileNotFoundError:
                raise VstreamError(
                    f"there is no key `{name}` in {self.directory}",
                    hint=f"`vstream keys create` makes what is missing; ${_VARIABLE} names another directory",
                ) from None
            except (OSError, ValueError, nkeys.NkeysError) as error:
                reason = error.strerror if isinstance(error, OSError) else "it is no seed"
                raise VstreamError(f"the key {path} cannot be read: {reason}") from None
        return self._pairs[name]

    def _is_current(self, user: str) -> bool:
        """Whether the credentials of *user* are there, and signed by its role's key: a rotation may have been cut off."""
        try:
            token = self.credentials_path(user).read_text(encoding="utf-8").splitlines()[1]
            return bool(jwt.decode(token).get("iss") == self.public_key(signing.role_key(user)))
        except (OSError, IndexError, VstreamError):
            return False

    def _sign_credentials(self, user: str, account: str) -> str:
        seed = nkeys.encode_seed(os.urandom(_SEED_BYTES), nkeys.PREFIX_BYTE_USER)
        pair = nkeys.from_seed(bytearray(seed))
        token = self.sign(claims.user_claims(user, account, pair.public_key.decode(), self), signing.role_key(user))
        return (
            f"-----BEGIN NATS USER JWT-----\n{token}\n------END NATS USER JWT------\n\n"
            f"-----BEGIN USER NKEY SEED-----\n{seed.decode()}\n------END USER NKEY SEED------\n"
        )

    @contextmanager
    def _locked_directory(self) -> Iterator[None]:
        """Nobody else makes keys in the directory at the same time, and nobody else reads it."""
        try:
            self.directory.mkdir(mode=_DIRECTORY_MODE, parents=True, exist_ok=True)
            self.directory.chmod(_DIRECTORY_MODE)
            with FileLock(self.directory / ".lock", mode=_FILE_MODE):
                yield
        except OSError as error:
            raise VstreamError(f"{self.directory} cannot be written: {error.strerror}") from None
