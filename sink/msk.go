package sink

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/twmb/franz-go/pkg/sasl"
	saslaws "github.com/twmb/franz-go/pkg/sasl/aws"
)

const (
	awsTimeout = 30 * time.Second

	// A signature outlives its credentials by nothing, so those that are about to expire are renewed first.
	awsExpiryWindow = 2 * time.Minute
)

// awsCredentials are what the SDK finds in its order: environment, web identity (IRSA), shared
// files, container, instance role. The SDK keeps them and renews them before they expire. They are first
// looked for at the first login, so that what is wrong with them is told like any other refused login.
type awsCredentials struct {
	mu struct {
		sync.Mutex
		provider aws.CredentialsProvider
	}
}

func (c *awsCredentials) retrieve(ctx context.Context) (aws.Credentials, error) {
	ctx, cancel := context.WithTimeout(ctx, awsTimeout)
	defer cancel()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.provider == nil {
		cfg, err := config.LoadDefaultConfig(ctx,
			config.WithCredentialsCacheOptions(func(o *aws.CredentialsCacheOptions) { o.ExpiryWindow = awsExpiryWindow }),
			config.WithHTTPClient(awshttp.NewBuildableClient().WithTransportOptions(func(t *http.Transport) { t.DisableKeepAlives = true })))
		if err != nil {
			return aws.Credentials{}, fmt.Errorf("read the AWS configuration: %w", err)
		}
		c.mu.provider = cfg.Credentials
	}
	found, err := c.mu.provider.Retrieve(ctx)
	if err != nil {
		return aws.Credentials{}, fmt.Errorf("find AWS credentials: %w", err)
	}
	return found, nil
}

func mskMechanism() sasl.Mechanism {
	var credentials awsCredentials
	return mskLogin{saslaws.ManagedStreamingIAM(func(ctx context.Context) (saslaws.Auth, error) {
		found, err := credentials.retrieve(ctx)
		if err != nil {
			return saslaws.Auth{}, &tokenError{err: err, refused: ctx.Err() == nil,
				remedy: "give the relay AWS credentials: a role of its instance, task or service account, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE; and AWS_REGION"}
		}
		return saslaws.Auth{AccessKey: found.AccessKeyID, SecretKey: found.SecretAccessKey, SessionToken: found.SessionToken, UserAgent: "walrelay"}, nil
	})}
}

// mskLogin names what is missing where nothing can be signed although there are credentials: the region,
// which franz-go reads out of a broker's name and, for other names, from the environment.
type mskLogin struct{ sasl.Mechanism }

// Authenticate is kgo's.
func (l mskLogin) Authenticate(ctx context.Context, host string) (sasl.Session, []byte, error) {
	session, message, err := l.Mechanism.Authenticate(ctx, host)
	if _, known := errors.AsType[*tokenError](err); err != nil && !known {
		err = &tokenError{err: err, refused: true, remedy: "set AWS_REGION to the region of the cluster"}
	}
	return session, message, err
}
