// A program that logs in by openid-client. It is told what to do over HTTP, and keeps its
// tokens in memory alone.
import { createServer } from "node:http";
import * as openid from "openid-client";

const issuer = "https://login.example.com";
const config = new openid.Configuration({ issuer, token_endpoint: issuer + "/oauth/token" }, "app", undefined, openid.ClientSecretBasic("none"));
let tokens;

async function told(what, url) {
  switch (what) {
    case "login":
      tokens = await openid.clientCredentialsGrant(config);
      return tokens.access_token;
    case "refresh":
      tokens = await openid.refreshTokenGrant(config, tokens.refresh_token);
      return tokens.access_token;
  }
  return (await openid.fetchProtectedResource(config, tokens.access_token, new URL(url), "GET")).text();
}

createServer(async (request, response) => {
  const [what, url] = request.url.slice(1).split("?");
  try {
    response.end(await told(what, decodeURIComponent(url ?? "")));
  } catch (e) {
    response.end(`exception: ${e}`);
  }
}).listen(Number(process.argv[2]), "127.0.0.1");
