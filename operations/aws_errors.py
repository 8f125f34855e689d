"""What AWS's client says of a call that failed, and what to do about it."""

from __future__ import annotations

from botocore.exceptions import BotoCoreError, ClientError

BAD_CREDENTIALS = (
    *("UnrecognizedClientException", "InvalidClientTokenId", "InvalidSignatureException"),
    *("ExpiredToken", "ExpiredTokenException", "MissingAuthenticationToken"),
)
"""Codes with which services refuse the caller and not the call."""


def told(error: BotoCoreError | ClientError) -> str:
    """One line: AWS's own words, and advice where it lacks credentials or a network."""
    if isinstance(error, ClientError):
        said = error.response["Error"]
        code = said.get("Code", "")
        advice = "; renew the credentials" if code in BAD_CREDENTIALS else ""
        return f"AWS refuses {error.operation_name}: {code}: {said.get('Message')}{advice}"
    match type(error).__name__:
        case "NoCredentialsError" | "PartialCredentialsError" | "CredentialRetrievalError":
            advice = "; log in (`aws configure`, `aws sso login`) or set AWS_PROFILE"
        case "ProfileNotFound":
            advice = "; set AWS_PROFILE to a profile of ~/.aws/config"
        case "EndpointConnectionError" | "ConnectTimeoutError":
            advice = "; check the network and the region"
        case _:
            advice = ""
    text = str(error)
    return f"{text[:1].lower()}{text[1:]}{advice}"
