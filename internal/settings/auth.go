package settings

import "crypto/tls"

// parseTLS reads certificates; nil when none is named.
func parseTLS(problems *Problems, prefix, ca, cert, key string) *tls.Config {
	if ca == "" && cert == "" && key == "" {
		return nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if ca != "" {
		roots, err := readRoots(ca)
		if err != nil {
			problems.Add(prefix+"_CA", "%v; expected a readable file with PEM certificates", err)
		}
		config.RootCAs = roots
	}
	switch {
	case cert == "" && key == "":
	case cert == "":
		problems.Add(prefix+"_CERT", "is not set, but %s_KEY is; expected both or neither", prefix)
	case key == "":
		problems.Add(prefix+"_KEY", "is not set, but %s_CERT is; expected both or neither", prefix)
	default:
		certPEM, certErr := readFile(cert)
		if certErr != nil {
			problems.Add(prefix+"_CERT", "%v; expected a readable file with a PEM certificate", certErr)
		}
		keyPEM, keyErr := readFile(key)
		if keyErr != nil {
			problems.Add(prefix+"_KEY", "%v; expected a readable file with the PEM key of %s_CERT", keyErr, prefix)
		}
		if certErr != nil || keyErr != nil {
			break
		}
		pair, err := tls.X509KeyPair(certPEM, keyPEM)
		if err != nil {
			problems.Add(prefix+"_CERT", "%v; expected a PEM certificate and its key in %s_KEY", err, prefix)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config
}

// parseNATSAuth reads the files that authenticate notifier to NATS. They are read again at each connection,
// so that they may be renewed.
func parseNATSAuth(problems *Problems, credsFile, nkeyFile string) *natsAuth {
	auth := &natsAuth{}
	if credsFile != "" && nkeyFile != "" {
		problems.Add("NATS_NKEY_FILE", "is set, and so is NATS_CREDS_FILE; expected only one of them")
	}
	if credsFile != "" {
		if err := auth.readCreds(credsFile); err != nil {
			problems.Add("NATS_CREDS_FILE", "%v; expected a readable credentials file with a user's JWT and seed", err)
		}
		auth.useCreds(credsFile)
	}
	if nkeyFile != "" {
		if err := auth.readNKey(nkeyFile); err != nil {
			problems.Add("NATS_NKEY_FILE", "%v; expected a readable file with a user's seed", err)
		}
		auth.useNKey(nkeyFile)
	}
	return auth
}
