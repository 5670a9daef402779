// An issuer on a free port of the loopback: npm's oidc-provider with its own pages for login and consent, on which anybody is
// who he says. Prints its address when it listens. Arguments: the folder that oidc-provider is in, seconds that ID tokens last.
import { createServer } from 'node:http';
import { generateKeyPairSync } from 'node:crypto';

const [, , folder, idTokenSeconds] = process.argv;
const say = console.log;
// It warns of what a test wants.
console.log = console.info = console.warn = () => {};
const { default: Provider } = await import(`${folder}/node_modules/oidc-provider/lib/index.js`);

const server = createServer();
await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
const issuer = `http://127.0.0.1:${server.address().port}`;
const key = generateKeyPairSync('rsa', { modulusLength: 2048 }).privateKey.export({ format: 'jwk' });

const provider = new Provider(issuer, {
  clients: [{
    client_id: 'pumice',
    application_type: 'native',
    token_endpoint_auth_method: 'none',
    redirect_uris: ['http://127.0.0.1/callback'],
    response_types: ['code'],
    grant_types: ['authorization_code', 'refresh_token', 'urn:ietf:params:oauth:grant-type:device_code'],
  }],
  jwks: { keys: [{ ...key, kid: 'one', use: 'sig', alg: 'RS256' }] },
  cookies: { keys: ['of a test'] },
  scopes: ['openid', 'offline_access'],
  claims: { openid: ['sub', 'groups'] },
  conformIdTokenClaims: false,
  features: { deviceFlow: { enabled: true }, revocation: { enabled: true }, devInteractions: { enabled: true } },
  findAccount: (_, id) => ({ accountId: id, claims: () => ({ sub: id, groups: ['research', 'system:masters'] }) }),
  rotateRefreshToken: true,
  ttl: { IdToken: Number(idTokenSeconds), AccessToken: 60, RefreshToken: 3600, Grant: 3600, Session: 3600, Interaction: 600, DeviceCode: 600 },
});
server.on('request', provider.callback());
say(issuer);
// It ends with whoever started it.
process.stdin.on('end', () => process.exit(0)).resume();
