"""An authority of the tests' own, with a server's and a client's certificate.

The server's is for 127.0.0.1 and localhost. Another authority, which signed
nothing, is there for clients that must refuse the server.
"""
import pathlib
import subprocess


class Certificates:
    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.authority = self.folder / "authority.pem"
        self.stranger = self.folder / "stranger.pem"
        self.server, self.server_key = self._names("server")
        self.client, self.client_key = self._names("client")
        self._make_authority("authority")
        self._make_authority("stranger")
        self._sign("server", "subjectAltName=IP:127.0.0.1,DNS:localhost")
        self._sign("client", "extendedKeyUsage=clientAuth")

    def _names(self, name):
        return self.folder / f"{name}.pem", self.folder / f"{name}.key"

    def _openssl(self, *arguments):
        subprocess.run(["openssl", *map(str, arguments)], check=True,
                       capture_output=True, stdin=subprocess.DEVNULL)

    def _request(self, name):
        certificate, key = self._names(name)
        return ["req", "-new", "-newkey", "ec", "-pkeyopt",
                "ec_paramgen_curve:prime256v1", "-noenc", "-keyout", key,
                "-subj", f"/CN={name}"], certificate

    def _make_authority(self, name):
        request, certificate = self._request(name)
        self._openssl(*request, "-x509", "-days", 2, "-out", certificate)

    def _sign(self, name, extension):
        request, certificate = self._request(name)
        wish, extensions = (self.folder / f"{name}.{end}"
                            for end in ("request", "extensions"))
        self._openssl(*request, "-out", wish)
        extensions.write_text(extension + "\n")
        self._openssl("x509", "-req", "-in", wish, "-days", 2,
                      "-CA", self.authority, "-CAkey",
                      self.authority.with_suffix(".key"),
                      "-CAcreateserial", "-extfile", extensions,
                      "-out", certificate)
